package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/backup"
	"github.com/vivarium-go/vivarium/engine"
)

// A source is where a backup comes from: a member that runs, or the directory of a stopped one.
type source struct{ config, dir string }

func (s *source) define(to *flag.FlagSet) {
	to.StringVar(&s.config, "config", "", "YAML `file` of a member: a member that runs makes the backup. Of its keys join, members, ensemble\nand tls count")
	to.StringVar(&s.dir, "dir", "", "the data `directory` of a stopped member")
}

func (s *source) named() bool { return s.config != "" || s.dir != "" }

// write writes a backup. Without an error it is whole.
func (s *source) write(ctx context.Context, w io.Writer) error {
	switch {
	case (s.config == "") == (s.dir == ""):
		return errors.New("name either -config or -dir")
	case s.dir != "":
		_, err := engine.BackupDir(s.dir, stoppable{ctx, w})
		return err
	}
	c, err := parseConfig(s.config)
	if err == nil {
		err = inKeys(embed.AskBackup(ctx, c.Config, w))
	}
	return err
}

// A stoppable takes nothing more once its ctx has ended.
type stoppable struct {
	ctx context.Context
	to  io.Writer
}

func (s stoppable) Write(b []byte) (int, error) {
	if err := s.ctx.Err(); err != nil {
		return 0, err
	}
	return s.to.Write(b)
}

// untilStopped returns a context that ends at a signal to stop, so that nothing half done is left. A
// second signal ends the process.
func untilStopped(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

// makeBackup writes a backup to a file, reads it again, and only then gives it its name.
func makeBackup(ctx context.Context, args []string, _ io.Reader, stdout, stderr io.Writer) int {
	flags := newFlags("backup", "-config node.yaml FILE\n       vivarium backup -dir DIR FILE", stderr)
	var from source
	from.define(flags)
	if code, ok := parse(flags, args, 1); !ok {
		return code
	}
	if from.config != "" && from.dir != "" || !from.named() {
		flags.Usage()
		return exitUsage
	}
	ctx, stop := untilStopped(ctx)
	defer stop()
	name := flags.Arg(0)
	if name == "-" {
		info, err := pipeBackup(ctx, from.write, stdout)
		return said(err, "backup", func() { sayBackup(stderr, info) }, stderr)
	}
	info, err := backup.Save(name, func(w io.Writer) error { return from.write(ctx, w) })
	return said(err, "backup", func() { fmt.Fprintf(stdout, "%s: ", name); sayBackup(stdout, info) }, stderr)
}

// said reports success, or the error of a command, and returns the exit code.
func said(err error, command string, success func(), stderr io.Writer) int {
	if err != nil {
		fmt.Fprintf(stderr, "vivarium %s: %v\n", command, err)
		return exitFailed
	}
	success()
	return exitOK
}

// A writing writes a backup. Without an error it is whole.
type writing func(context.Context, io.Writer) error

// pipeBackup writes a backup to w, and verifies it on the way.
func pipeBackup(ctx context.Context, write writing, w io.Writer) (embed.BackupInfo, error) {
	var info embed.BackupInfo
	err := piped(func(to io.Writer) error { return write(ctx, io.MultiWriter(w, to)) }, func(r io.Reader) (err error) {
		info, err = backup.Verify(r)
		return err
	})
	return info, err
}

// piped runs write and read on the two ends of a pipe. If one ends with an error, so does the
// other.
func piped(write func(io.Writer) error, read func(io.Reader) error) error {
	r, w := io.Pipe()
	written := make(chan error, 1)
	go func() {
		err := write(w)
		w.CloseWithError(err)
		written <- err
	}()
	err := read(r)
	r.CloseWithError(errors.New("its reader has ended"))
	if cause := <-written; err == nil || errors.Is(err, cause) {
		return cause
	}
	return err
}

func sayBackup(w io.Writer, info embed.BackupInfo) {
	of := "an ensemble without a name"
	if info.Ensemble != "" {
		of = fmt.Sprintf("the ensemble %q", info.Ensemble)
	}
	by := fmt.Sprintf("by member %d", info.Member)
	if info.Member == 0 {
		of, by = "ZooKeeper", "converted"
	}
	fmt.Fprintf(w, "sound: %d znodes of %s, %s at %s\n", info.Znodes, of, by, info.Time.Format(time.RFC3339))
	fmt.Fprintf(w, "%d bytes, sha256 %s, level %d, lineage %s\n", info.Size, info.Sum, info.Level, orDash(info.Lineage))
	for _, s := range info.Shards {
		fmt.Fprintf(w, "shard %d: %d znodes to zxid %#x\n", s.Shard, s.Znodes, uint64(s.Zxid))
	}
}

// verify reads a backup and says what it has.
func verify(_ context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	flags := newFlags("verify", "FILE", stderr)
	if code, ok := parse(flags, args, 1); !ok {
		return code
	}
	in, err := openOr(flags.Arg(0), stdin)
	if err != nil {
		fmt.Fprintf(stderr, "vivarium verify: %v\n", err)
		return exitUsage
	}
	defer in.Close()
	info, err := backup.Verify(in)
	return said(err, "verify", func() { fmt.Fprintf(stdout, "%s: ", flags.Arg(0)); sayBackup(stdout, info) }, stderr)
}

// openOr opens a file; "-" is the standard input.
func openOr(name string, stdin io.Reader) (io.ReadCloser, error) {
	if name == "-" {
		return io.NopCloser(stdin), nil
	}
	return os.Open(name)
}

// export writes the znodes of a backup, or of a member, as lines of JSON.
func export(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	flags := newFlags("export", "[-path /a] FILE\n       vivarium export [-path /a] -config node.yaml\n       vivarium export [-path /a] -dir DIR", stderr)
	var from source
	from.define(flags)
	path := flags.String("path", "/", "only this znode and what is below it")
	files := func() int {
		if from.named() {
			return 0
		}
		return 1
	}
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return exitOK
	case err != nil:
		return exitUsage
	case flags.NArg() != files():
		flags.Usage()
		return exitUsage
	}
	ctx, stop := untilStopped(ctx)
	defer stop()
	lines := func(r io.Reader) error {
		in, err := backup.NewReader(r)
		if err == nil {
			_, err = backup.WriteLines(stdout, backup.Below(in.Znodes(), *path))
		}
		return err
	}
	if from.named() {
		return said(piped(func(w io.Writer) error { return from.write(ctx, w) }, lines), "export", func() {}, stderr)
	}
	in, err := openOr(flags.Arg(0), stdin)
	if err != nil {
		fmt.Fprintf(stderr, "vivarium export: %v\n", err)
		return exitUsage
	}
	defer in.Close()
	return said(lines(in), "export", func() {}, stderr)
}
