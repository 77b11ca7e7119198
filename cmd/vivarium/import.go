package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"

	"github.com/vivarium-go/vivarium/cmd/vivarium/internal/client"
	"github.com/vivarium-go/vivarium/embed/backup"
	"github.com/vivarium-go/vivarium/internal/wire"
)

var existing = map[string]backup.Existing{"fail": backup.Fail, "skip": backup.Skip, "overwrite": backup.Overwrite}

// importLines creates the znodes of a backup, or of lines of JSON, through a server.
func importLines(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	flags := newFlags("import", "-server host:port[/root] [-auth file:NAME|env:NAME|ask] [-path /a] [-as /b]\n"+
		"       [-client-configuration FILE] [-existing fail|skip|overwrite] [-prune] [-dry-run] FILE", stderr)
	server := flags.String("server", "", "where clients connect, with a `root` for all paths if there is one")
	var as access
	as.define(flags, "auth", "client-configuration", "server")
	mode := flags.String("existing", "fail", "what to do with a znode that exists: fail, skip or overwrite")
	var o backup.Options
	flags.StringVar(&o.Path, "path", "/", "only this znode and what is below it")
	flags.StringVar(&o.As, "as", "", "where the server is to have what the file has at -path. Default: the same path")
	flags.BoolVar(&o.Prune, "prune", false, "also delete what the server has there and the file does not, except ephemerals and what is above\nthem")
	flags.BoolVar(&o.DryRun, "dry-run", false, "print what would be done, and change nothing")
	if code, ok := parse(flags, args, 1); !ok {
		return code
	}
	var known bool
	o.Existing, known = existing[*mode]
	servers, root, err := client.ParseServers(*server)
	if *server == "" || !known || err != nil {
		flags.Usage()
		return exitUsage
	}
	if err = as.read(stdin, stderr); err == nil && flags.Arg(0) != "-" {
		err = isKind(flags.Arg(0), false)
	}
	if err != nil {
		return failWith(err, "import", exitUsage, stderr)
	}
	ctx, stop := untilStopped(ctx)
	defer stop()
	in, znodes, err := znodesOf(flags.Arg(0), stdin, o.Prune)
	if err != nil {
		fmt.Fprintf(stderr, "vivarium import: %v\n", err)
		return exitFailed
	}
	defer in.Close()
	zk, err := connect(ctx, client.Config{Servers: servers, Chroot: root, TLS: as.tls}, as.auth)
	if err != nil {
		fmt.Fprintf(stderr, "vivarium import: %s: %v\n", *server, err)
		return exitFailed
	}
	defer zk.Close()
	out := bufio.NewWriter(stdout)
	defer out.Flush()
	o.Step = func(s backup.Step) {
		if o.DryRun || s.Action == backup.Kept {
			fmt.Fprintln(out, s.Action, s.Path)
		}
	}
	report, err := backup.Import(ctx, remote{zk}, znodes, o)
	if o.DryRun {
		fmt.Fprint(out, "dry run: ")
	}
	fmt.Fprintln(out, report)
	if report.NoEnd && err == nil {
		fmt.Fprintf(stderr, "vivarium import: %v\n", backup.ErrNoEnd)
	}
	return said(err, "import", func() {}, stderr)
}

// znodesOf opens a file. It is verified first, so that nothing comes of one that is damaged, nor of
// lines without an end if whole is set. What comes from a pipe shows its faults on the way.
func znodesOf(name string, stdin io.Reader, whole bool) (io.Closer, iter.Seq2[backup.Znode, error], error) {
	if name == "-" {
		return io.NopCloser(nil), backup.Lines(stdin), nil
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, nil, err
	}
	znodes, err := verified(f, whole)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("%s: %w", name, err), f.Close())
	}
	return f, znodes, nil
}

// verified reads a file to its end, and returns what it has.
func verified(f *os.File, whole bool) (iter.Seq2[backup.Znode, error], error) {
	_, err := backup.Verify(f)
	isBackup := !errors.Is(err, backup.ErrNotBackup)
	if !isBackup {
		if _, err = f.Seek(0, io.SeekStart); err == nil {
			err = soundLines(f, whole)
		}
	}
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil || !isBackup {
		return backup.Lines(f), err
	}
	r, err := backup.NewReader(f)
	if err != nil {
		return nil, err
	}
	return r.Znodes(), nil
}

// soundLines returns what is wrong with lines.
func soundLines(r io.Reader, whole bool) error {
	for _, err := range backup.Lines(r) {
		if err != nil && (whole || !errors.Is(err, backup.ErrNoEnd)) {
			return err
		}
	}
	return nil
}

// connect opens a session.
func connect(ctx context.Context, c client.Config, auth []wire.Auth) (*client.Client, error) {
	c.WithoutConfig = true
	zk, err := client.New(c)
	if err != nil {
		return nil, err
	}
	ready, cancel := context.WithTimeout(ctx, client.DefaultTimeout)
	defer cancel()
	err = zk.Ready(ready)
	for _, a := range auth {
		if err == nil {
			err = zk.AddAuth(ctx, a.Scheme, a.Proof)
		}
	}
	if err != nil {
		return nil, errors.Join(err, zk.Close())
	}
	return zk, nil
}
