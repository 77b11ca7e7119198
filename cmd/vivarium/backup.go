package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/backup"
	"github.com/vivarium-go/vivarium/engine/offline"
)

// A source is where a backup comes from: a member that runs, or the directory of a stopped one.
type source struct {
	config, dir string
	asked       embed.Config // after check, of config
}

func (s *source) define(to *flag.FlagSet) {
	to.StringVar(&s.config, "config", "", "YAML `file` of a member: a member that runs makes the backup. Of its keys join, members, ensemble\nand tls count")
	to.StringVar(&s.dir, "dir", "", "the data `directory` of a stopped member")
}

func (s *source) named() bool { return s.config != "" || s.dir != "" }

// check looks whether a backup may come from there at all.
func (s *source) check() error {
	switch {
	case s.config != "" && s.dir != "":
		return errors.New("name either -config or -dir")
	case s.dir != "":
		return isKind(s.dir, true)
	}
	c, err := parseConfig(s.config)
	s.asked = c.Config
	return err
}

// write writes a backup. Without an error it is whole.
func (s *source) write(ctx context.Context, w io.Writer) error {
	if s.dir != "" {
		_, err := offline.BackupDir(s.dir, stoppable{ctx, w})
		return err
	}
	return inKeys(embed.AskBackup(ctx, s.asked, w))
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
	if !from.named() {
		flags.Usage()
		return exitUsage
	}
	if err := from.check(); err != nil {
		return failWith(err, "backup", exitUsage, stderr)
	}
	ctx, stop := untilStopped(ctx)
	defer stop()
	name := flags.Arg(0)
	return writeTo(ctx, "backup", name, from.write, stdout, stderr, func(w io.Writer, info embed.BackupInfo) {
		fmt.Fprintf(w, "%s: ", name)
		sayBackup(w, info)
	})
}

// writeTo writes a backup to where a command was told, and then says what it is. A regular file gets
// its name only when it is whole. Standard output ("-"), a FIFO or a device get the bytes as they come.
func writeTo(ctx context.Context, command, name string, write writing, stdout, stderr io.Writer, say func(io.Writer, embed.BackupInfo)) int {
	if name == "-" {
		info, err := pipeBackup(ctx, write, stdout)
		return said(err, command, func() { say(stderr, info) }, stderr)
	}
	to, stream, err := target(name)
	if err != nil {
		return failWith(err, command, exitUsage, stderr)
	}
	var info embed.BackupInfo
	if stream != nil {
		info, err = pipeBackup(ctx, write, stream)
		err = errors.Join(err, stream.Close())
	} else {
		info, err = backup.Save(to, func(w io.Writer) error { return write(ctx, w) })
	}
	return said(err, command, func() { say(stdout, info) }, stderr)
}

// target returns the file behind a name, which need not exist, or the open stream that it names. A
// symbolic link stays one.
func target(name string) (file string, stream io.WriteCloser, err error) {
	info, err := os.Stat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if _, link := os.Readlink(name); link == nil {
			return "", nil, fmt.Errorf("%s is a symbolic link to nothing: name the file itself", name)
		}
		_, err := os.Stat(filepath.Dir(name))
		return name, nil, err
	case err != nil:
		return "", nil, err
	case info.IsDir():
		return "", nil, fmt.Errorf("%s is a directory: name a file", name)
	case info.Mode().IsRegular():
		file, err = filepath.EvalSymlinks(name)
		return file, nil, err
	}
	stream, err = os.OpenFile(name, os.O_WRONLY, 0)
	return "", stream, err
}

// of adds the name of a file to an error that is about its content.
func of(name string, err error) error {
	if err == nil || errors.As(err, new(*fs.PathError)) {
		return err
	}
	return fmt.Errorf("%s: %w", name, err)
}

// said reports success, or the error of a command, and returns the exit code.
func said(err error, command string, success func(), stderr io.Writer) int {
	if err != nil {
		return failWith(err, command, exitFailed, stderr)
	}
	success()
	return exitOK
}

// failWith reports the error of a command, and returns its exit code.
func failWith(err error, command string, code int, stderr io.Writer) int {
	fmt.Fprintf(stderr, "vivarium %s: %v\n", command, err)
	return code
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
		return failWith(err, "verify", exitUsage, stderr)
	}
	defer in.Close()
	info, err := backup.Verify(in)
	return said(of(flags.Arg(0), err), "verify", func() { fmt.Fprintf(stdout, "%s: ", flags.Arg(0)); sayBackup(stdout, info) }, stderr)
}

// openOr opens a file; "-" is the standard input.
func openOr(name string, stdin io.Reader) (io.ReadCloser, error) {
	if name == "-" {
		return io.NopCloser(stdin), nil
	}
	if err := isKind(name, false); err != nil {
		return nil, err
	}
	return os.Open(name)
}

// isKind returns an error if a name is not there, or is a directory where a file is wanted, or the
// other way round.
func isKind(name string, dir bool) error {
	info, err := os.Stat(name)
	switch {
	case err != nil:
		return err
	case info.IsDir() && !dir:
		return fmt.Errorf("%s is a directory: name a file", name)
	case !info.IsDir() && dir:
		return fmt.Errorf("%s is no directory", name)
	}
	return nil
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
		if err := from.check(); err != nil {
			return failWith(err, "export", exitUsage, stderr)
		}
		return said(piped(func(w io.Writer) error { return from.write(ctx, w) }, lines), "export", func() {}, stderr)
	}
	in, err := openOr(flags.Arg(0), stdin)
	if err != nil {
		return failWith(err, "export", exitUsage, stderr)
	}
	defer in.Close()
	return said(of(flags.Arg(0), lines(in)), "export", func() {}, stderr)
}
