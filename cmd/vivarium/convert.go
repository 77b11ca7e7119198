package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/vivarium-go/vivarium/cmd/vivarium/internal/zkdir"
	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/engine"
	"github.com/vivarium-go/vivarium/engine/backupfile"
	records "github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/tree"
)

// convert writes what a stopped ZooKeeper server has as a backup.
func convert(ctx context.Context, args []string, _ io.Reader, stdout, stderr io.Writer) int {
	flags := newFlags("convert", "-from-zookeeper DIR [-logs DIR] FILE", stderr)
	data := flags.String("from-zookeeper", "", "the dataDir of a stopped server, versions 3.4 to 3.9")
	logs := flags.String("logs", "", "its dataLogDir, if that is another directory")
	if code, ok := parse(flags, args, 1); !ok {
		return code
	}
	if *data == "" {
		flags.Usage()
		return exitUsage
	}
	if *logs == "" {
		*logs = *data
	}
	if err := errors.Join(isKind(*data, true), isKind(*logs, true)); err != nil {
		return failWith(err, "convert", exitUsage, stderr)
	}
	ctx, stop := untilStopped(ctx)
	defer stop()
	from, err := zkdir.Read(*data, *logs)
	if err != nil {
		return said(err, "convert", nil, stderr)
	}
	c := conversion{from: from}
	if err := c.look(); err != nil {
		return said(err, "convert", nil, stderr)
	}
	name := flags.Arg(0)
	return writeTo(ctx, "convert", name, c.write, stdout, stderr, func(w io.Writer, info embed.BackupInfo) {
		fmt.Fprintf(w, "%s: ", name)
		sayBackup(w, info)
		c.say(w)
	})
}

// A conversion is what a backup will have of another system's tree.
type conversion struct {
	from       *zkdir.Tree
	znodes     int
	ephemerals int
	largest    int    // bytes of data
	at         string // the path of the largest
	schemes    []string
}

// look goes through the znodes. It refuses those that no ensemble could have.
func (c *conversion) look() error {
	loader := tree.NewLoader(nil)
	for path, z := range c.from.Znodes() {
		if err := loader.Add(path, z); err != nil {
			return err
		}
		if len(z.Data) > engine.MaxDataSizeMax {
			return fmt.Errorf("%s has %d bytes, and no znode can have more than %d", path, len(z.Data), engine.MaxDataSizeMax)
		}
		c.znodes++
		if z.Owner != 0 {
			c.ephemerals++
		}
		if len(z.Data) > c.largest {
			c.largest, c.at = len(z.Data), path
		}
		for _, a := range z.ACL {
			c.schemes = append(c.schemes, a.Scheme)
		}
	}
	slices.Sort(c.schemes)
	c.schemes = slices.DeleteFunc(slices.Compact(c.schemes), func(s string) bool { return s == "world" })
	if err := loader.Add(tree.ConfigPath, tree.Znode{}); err != nil { // each ensemble has its own
		return err
	}
	_, err := loader.Finish(c.from.Zxid)
	return err
}

// write writes the backup.
func (c *conversion) write(ctx context.Context, w io.Writer) error {
	out, err := backupfile.NewWriter(w, backupfile.Header{Time: c.from.Time().UnixMilli(), Shards: []backupfile.Shard{
		{Shard: 1, Level: records.LevelMin, Zxid: c.from.Zxid, Znodes: c.znodes, Schemes: c.schemes}}})
	if err != nil {
		return err
	}
	var record []byte
	for path, z := range c.from.Znodes() {
		record = records.AppendZnode(record[:0], z)
		full, err := out.Add(1, path, record)
		if err == nil && full {
			err = errors.Join(out.Flush(), ctx.Err())
		}
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	_, err = out.Close()
	return err
}

// say says what whoever brings the backup into an ensemble has to know.
func (c *conversion) say(w io.Writer) {
	if !c.from.Digested {
		fmt.Fprintln(w, "the server kept no digests, as before 3.6: a gap in its log between two leaders would not show")
	}
	if c.from.Cut {
		fmt.Fprintln(w, "the last record of its log was cut while it was written, and is left out: nobody was told that it was done")
	}
	fmt.Fprintf(w, "%d ephemerals are in it to look at; nothing creates them again\n", c.ephemerals)
	if c.largest > embed.DefaultMaxDataSize {
		fmt.Fprintf(w, "%s has %d bytes: set maxDataSize on all members\n", c.at, c.largest)
	}
	builtIn := tree.BuiltinSchemes()
	others := slices.DeleteFunc(slices.Clone(c.schemes), func(s string) bool { return builtIn[s] != nil })
	if len(others) > 0 {
		fmt.Fprintf(w, "ACLs use %s: where members do not have such a scheme, these entries permit nothing\n", strings.Join(others, ", "))
	}
}
