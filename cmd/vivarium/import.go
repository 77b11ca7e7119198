package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"strings"

	"github.com/vivarium-go/vivarium/cmd/vivarium/internal/client"
	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/backup"
	"github.com/vivarium-go/vivarium/internal/wire"
)

var existing = map[string]backup.Existing{"fail": backup.Fail, "skip": backup.Skip, "overwrite": backup.Overwrite}

// importLines creates the znodes of a backup, or of lines of JSON, through a server.
func importLines(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	flags := newFlags("import", "-server host:port[/root] [-auth scheme:credential] [-existing fail|skip|overwrite] [-path /a] FILE", stderr)
	server := flags.String("server", "", "where clients connect, with a `root` for all paths if there is one")
	auth := flags.String("auth", "", "a `credential`, such as digest:super:password")
	mode := flags.String("existing", "fail", "what to do with a znode that exists: fail, skip or overwrite")
	path := flags.String("path", "/", "only this znode and what is below it")
	if code, ok := parse(flags, args, 1); !ok {
		return code
	}
	o, known := existing[*mode]
	servers, root, err := client.ParseServers(*server)
	if *server == "" || !known || err != nil {
		flags.Usage()
		return exitUsage
	}
	ctx, stop := untilStopped(ctx)
	defer stop()
	in, znodes, err := znodesOf(flags.Arg(0), stdin)
	if err != nil {
		fmt.Fprintf(stderr, "vivarium import: %v\n", err)
		return exitFailed
	}
	defer in.Close()
	zk, err := connect(ctx, servers, root, *auth)
	if err != nil {
		fmt.Fprintf(stderr, "vivarium import: %s: %v\n", *server, err)
		return exitFailed
	}
	defer zk.Close()
	report, err := backup.Import(ctx, remote{zk}, backup.Below(znodes, *path), backup.Options{Existing: o})
	fmt.Fprintln(stdout, report)
	return said(err, "import", func() {}, stderr)
}

// znodesOf opens a file. A backup is verified first, so that nothing comes of one that is damaged.
func znodesOf(name string, stdin io.Reader) (io.Closer, iter.Seq2[backup.Znode, error], error) {
	if name == "-" {
		return io.NopCloser(nil), backup.Lines(stdin), nil
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, nil, err
	}
	_, err = backup.Verify(f)
	isBackup := !errors.Is(err, backup.ErrNotBackup)
	if !isBackup {
		err = nil
	}
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	switch {
	case err != nil:
		return nil, nil, errors.Join(fmt.Errorf("%s: %w", name, err), f.Close())
	case !isBackup:
		return f, backup.Lines(bufio.NewReader(f)), nil
	}
	r, err := backup.NewReader(f)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("%s: %w", name, err), f.Close())
	}
	return f, r.Znodes(), nil
}

// connect opens a session.
func connect(ctx context.Context, servers []string, root, auth string) (*client.Client, error) {
	zk, err := client.New(client.Config{Servers: servers, Chroot: root})
	if err != nil {
		return nil, err
	}
	ready, cancel := context.WithTimeout(ctx, client.DefaultTimeout)
	defer cancel()
	if err = zk.Ready(ready); err == nil && auth != "" {
		scheme, proof, _ := strings.Cut(auth, ":")
		err = zk.AddAuth(ctx, scheme, []byte(proof))
	}
	if err != nil {
		return nil, errors.Join(err, zk.Close())
	}
	return zk, nil
}

// A remote is a tree as a server shows it.
type remote struct{ zk *client.Client }

func (r remote) Create(ctx context.Context, znodes []backup.Znode) error {
	q := wire.Request{Operation: wire.Operation{Op: wire.OpMulti}}
	for i := range znodes {
		q.Ops = append(q.Ops, creation(&znodes[i]))
	}
	reply, err := r.zk.Call(ctx, q)
	if err != nil {
		return err
	}
	for i, result := range reply.Results {
		switch result.Err {
		case wire.OK, wire.RuntimeInconsistency: // the latter is behind the one that failed
		case wire.NodeExists:
			return fmt.Errorf("%s: %w", znodes[i].Path, embed.ErrNodeExists)
		default:
			return &client.Error{Code: result.Err, Path: znodes[i].Path}
		}
	}
	return nil
}

func creation(z *backup.Znode) wire.Operation {
	o := wire.Operation{Op: wire.OpCreate, Path: z.Path, Data: z.Data, ACL: aclOf(z)}
	switch z.Mode {
	case embed.Container:
		o.Op, o.Flags = wire.OpCreateContainer, wire.FlagsContainer
	case embed.TTL:
		o.Op, o.Flags, o.TTL = wire.OpCreateTTL, wire.FlagsTTL, z.TTL.Milliseconds()
	}
	return o
}

func aclOf(z *backup.Znode) (list []wire.ACL) {
	for _, a := range z.ACL {
		list = append(list, wire.ACL{Perms: wire.Perms(a.Perms), Scheme: a.Scheme, ID: a.ID})
	}
	return list
}

func (r remote) Overwrite(ctx context.Context, z backup.Znode) error {
	_, err := r.zk.Call(ctx, wire.Request{Operation: wire.Operation{Op: wire.OpSetData, Path: z.Path, Data: z.Data, Version: -1}})
	if err == nil {
		_, err = r.zk.Call(ctx, wire.Request{Operation: wire.Operation{Op: wire.OpSetACL, Path: z.Path, ACL: aclOf(&z), Version: -1}})
	}
	return err
}
