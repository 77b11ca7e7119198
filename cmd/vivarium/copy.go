package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"

	"github.com/vivarium-go/vivarium/cmd/vivarium/internal/client"
	"github.com/vivarium-go/vivarium/cmd/vivarium/internal/transfer"
)

const copyUsage = "-from zk1:2181[/root] [-path /a] [-as /b] -server host:port[/root] [-follow]\n" +
	"       [-existing fail|overwrite] [-prune] [-from-auth file:NAME|env:NAME|ask] [-auth file:NAME|env:NAME|ask]\n" +
	"       [-from-client-configuration FILE] [-client-configuration FILE]"

// copyLiving copies a subtree of a living tree into another one, and compares both.
func copyLiving(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	flags := newFlags("copy", copyUsage, stderr)
	o := copyFlags(flags)
	if code, ok := parse(flags, args, 0); !ok {
		return code
	}
	cfg, err := o.config()
	if err != nil {
		fmt.Fprintf(stderr, "vivarium copy: %v\n", err)
		flags.Usage()
		return exitUsage
	}
	if err := errors.Join(o.source.read(stdin, stderr), o.target.read(stdin, stderr)); err != nil {
		fmt.Fprintf(stderr, "vivarium copy: %v\n", err)
		return exitUsage
	}
	cfg.From.Auth, cfg.From.TLS = o.source.auth, o.source.tls
	cfg.To.Auth, cfg.To.TLS = o.target.auth, o.target.tls
	ctx, cut, stop := untilCutOver(ctx, *o.follow)
	defer stop()
	if *o.follow {
		cfg.CutOver = cut
	}
	cfg.Log = func(line string) { fmt.Fprintln(stderr, line) }
	result, err := transfer.Run(ctx, cfg)
	fmt.Fprintln(stdout, result.Counts)
	if err != nil {
		fmt.Fprintf(stderr, "vivarium copy: %v\n", err)
		return exitFailed
	}
	return sayCopy(stdout, &result)
}

// copyOptions are the flags of copy.
type copyOptions struct {
	from, to, path, as, existing *string
	prune, follow                *bool
	source, target               access
}

func copyFlags(flags *flag.FlagSet) *copyOptions {
	o := &copyOptions{
		from:     flags.String("from", "", "the source: `host:port`,..., with a root for all paths if there is one"),
		to:       flags.String("server", "", "the target: `host:port`,..., likewise"),
		path:     flags.String("path", "/", "only this znode of the source and what is below it"),
		as:       flags.String("as", "", "its `path` at the target. Default: the same"),
		existing: flags.String("existing", "fail", "if the target has it already: fail, or overwrite"),
		prune:    flags.Bool("prune", false, "with -existing overwrite: delete what the source has not"),
		follow:   flags.Bool("follow", false, "follow changes until SIGINT or SIGTERM, then cut over"),
	}
	o.source.define(flags, "from-auth", "from-client-configuration", "source")
	o.target.define(flags, "auth", "client-configuration", "target")
	return o
}

func (o *copyOptions) config() (cfg transfer.Config, err error) {
	if *o.as == "" {
		*o.as = *o.path
	}
	cfg = transfer.Config{Prune: *o.prune, RootStays: *o.as == "/"}
	switch *o.existing {
	case "overwrite":
		cfg.Overwrite = true
	case "fail":
	default:
		return cfg, fmt.Errorf("-existing %s: want fail or overwrite", *o.existing)
	}
	if cfg.Prune && !cfg.Overwrite {
		return cfg, fmt.Errorf("-prune needs -existing overwrite")
	}
	if cfg.From, err = sideOf("from", *o.from, *o.path); err != nil {
		return cfg, err
	}
	if cfg.To, err = sideOf("server", *o.to, *o.as); err != nil {
		return cfg, err
	}
	for _, s := range cfg.From.Servers {
		a, b := cfg.From.Path, cfg.To.Path
		if slices.Contains(cfg.To.Servers, s) && (within(a, b) || within(b, a)) {
			return cfg, fmt.Errorf("%s and %s: %w", a, b, transfer.ErrOneTree)
		}
	}
	return cfg, nil
}

var within = transfer.Within

// sideOf returns a side. Its path is the one in the whole tree.
func sideOf(name, servers, path string) (transfer.Side, error) {
	list, root, err := client.ParseServers(servers)
	if err != nil {
		return transfer.Side{}, fmt.Errorf("-%s: %w", name, err)
	}
	if err := client.CheckPath(path); err != nil {
		return transfer.Side{}, fmt.Errorf("%s: %w", path, err)
	}
	if root != "" && path == "/" {
		path = root
	} else {
		path = root + path
	}
	if within(path, "/zookeeper") {
		return transfer.Side{}, fmt.Errorf("%s belongs to the ensemble itself", path)
	}
	return transfer.Side{Servers: list, Path: path}, nil
}

// untilCutOver returns a context that a signal ends. If follow is set, the first signal closes cut
// instead, and only the second one ends the context.
func untilCutOver(parent context.Context, follow bool) (ctx context.Context, cut <-chan struct{}, stop func()) {
	ctx, cancel := context.WithCancel(parent)
	signals, told := make(chan os.Signal, 2), make(chan struct{})
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	var waiter sync.WaitGroup
	waiter.Go(func() {
		for first := follow; ; first = false {
			select {
			case <-signals:
			case <-ctx.Done():
				return
			}
			if !first {
				cancel()
				return
			}
			close(told)
		}
	})
	return ctx, told, func() {
		signal.Stop(signals)
		cancel()
		waiter.Wait()
	}
}

// sayCopy prints how both sides compare, and returns the exit code.
func sayCopy(w io.Writer, r *transfer.Result) int {
	fmt.Fprintf(w, "source: %v\ntarget: %v\n", r.Source, r.Target)
	if n := len(r.Again); n > 0 {
		fmt.Fprintf(w, "%d parents will give sequence numbers again that children have: %s", n, r.Again[0])
		if n > 1 {
			fmt.Fprint(w, " and others")
		}
		fmt.Fprintln(w)
	}
	if r.Equal() {
		fmt.Fprintln(w, "equal")
		return exitOK
	}
	for _, d := range r.Differences {
		fmt.Fprintf(w, "%s: %s\n", d.Path, d.Why)
	}
	if more := r.Different - len(r.Differences); more > 0 {
		fmt.Fprintf(w, "and %d more\n", more)
	}
	fmt.Fprintln(w, "different")
	return exitFailed
}
