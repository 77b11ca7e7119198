package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/audit"
	"github.com/vivarium-go/vivarium/embed/gateway"
)

func serve(ctx context.Context, args []string, _ io.Reader, stdout, stderr io.Writer) int {
	flags := newFlags("serve", "-config node.yaml [-id N] [-advertise host:port] [-name NAME] [-seed FILE] [-check] [-log text|json] [-v]", stderr)
	file := flags.String("config", "", "YAML `file` with dir, gateway and more; see the documentation of the command. A relative dir starts at\nthe directory that the command is started in")
	var own embed.Config
	flags.Func("id", "this member, instead of the file's id, so that one file serves all members; `N` begins at 1", func(s string) error {
		n, err := strconv.ParseUint(s, 10, 64)
		if err == nil && n == 0 {
			err = errors.New("ids begin at 1")
		}
		own.ID = embed.MemberID(n)
		return err
	})
	flags.StringVar(&own.Advertise, "advertise", "", "where the others reach this member, instead of the file's advertise, so that one file serves all members")
	flags.StringVar(&own.Name, "name", "", "`NAME` of this replica, instead of the file's name: who comes back under it with an empty directory\ntakes the place of who had it")
	seed := flags.String("seed", "", "backup `file` that a new ensemble begins with; all members need the same one")
	form := flags.String("log", "text", "`form` of the lines on standard error, text or json")
	verbose := flags.Bool("v", false, "also log lines for debugging")
	only := flags.Bool("check", false, "check the config and start nothing")
	if code, ok := parse(flags, args, 0); !ok {
		return code
	}
	if *file == "" || *form != "text" && *form != "json" {
		flags.Usage()
		return exitUsage
	}
	c, err := readConfig(*file, own)
	if err != nil {
		fmt.Fprintln(stderr, err)
		return exitUsage
	}
	if *seed != "" {
		if err := seedFrom(&c, *seed); err != nil {
			fmt.Fprintf(stderr, "vivarium serve: -seed: %v\n", err)
			return exitUsage
		}
	}
	if *only {
		fmt.Fprintf(stdout, "%s: ok\n", *file)
		return exitOK
	}
	log, endLog := newLog(stderr, *form, *verbose)
	defer endLog()
	slog.SetDefault(log)
	c.Logger = log
	if err := runMember(ctx, c, *file, log, endLog); err != nil {
		log.Error("failed", "cause", err)
		return exitFailed
	}
	return exitOK
}

// runMember runs a member and its gateway until a signal arrives, ctx ends, or the node fails for
// anything that a mended disk does not cure.
func runMember(ctx context.Context, c config, file string, log *slog.Logger, endLog func()) error {
	ctx, stop := untilSignal(ctx, log, endLog)
	defer stop()
	dir, err := filepath.Abs(c.Dir)
	if err != nil {
		return err
	}
	log.Info("starting", "version", version(), "config", file, "dir", dir)
	if err := free(&c); err != nil {
		return err
	}
	if c.Journal != nil {
		c.Journal.Logger = log
		journal, err := audit.Open(*c.Journal)
		if err != nil {
			return err
		}
		defer closeInTime(journal, log)
		c.Audit = journal.Record
	}
	c.Schemes = schemes(c.Gateway)
	hangUps := make(chan os.Signal, 1)
	signal.Notify(hangUps, syscall.SIGHUP) // also while no node runs: SIGHUP would end the process
	defer signal.Stop(hangUps)
	err = embed.Supervise(ctx, c.Config, func(ctx context.Context, node *embed.Node) error {
		return serveClients(ctx, node, c, hangUps, log)
	})
	if err != nil && (ctx.Err() == nil || !errors.Is(err, ctx.Err())) {
		return err
	}
	log.Info("stopped")
	return nil
}

// The schemes of what the clients of a gateway may prove.
const (
	saslScheme = "sasl"
	x509Scheme = "x509"
)

// schemes returns the schemes by which ACLs can name what clients of the gateway prove. The others
// are left out: all members of an ensemble must have the same.
func schemes(c gateway.Config) map[string]embed.Scheme {
	all := make(map[string]embed.Scheme)
	if c.SASLUsers != "" {
		all[saslScheme] = gateway.SASL()
	}
	if c.TLS != nil && c.TLS.ClientCAFile != "" {
		all[x509Scheme] = gateway.X509()
	}
	return all
}

// serveClients runs the gateway of a node until ctx ends or the node fails. It closes both, unless
// the node has failed: then its supervisor says what follows.
func serveClients(ctx context.Context, node *embed.Node, c config, hangUps <-chan os.Signal, log *slog.Logger) error {
	door, err := gateway.Start(node, c.Gateway)
	if err != nil {
		return err
	}
	auditDir := ""
	if c.Journal != nil {
		auditDir = c.Journal.Dir
	}
	admin, err := serveAdmin(node, door, c.Admin, auditDir, log)
	if err != nil {
		return errors.Join(err, door.Close())
	}
	defer admin.stop()
	defer onHangUp(hangUps, node, door, admin, log)()
	backupsEnd, err := startBackups(ctx, node, c.Backup, log)
	if err != nil {
		return errors.Join(err, door.Close())
	}
	if err := ready(ctx, node, log.With("clients", door.Addr().String())); err == nil {
		status := node.Status()
		log.Info("serving", "clients", door.Addr().String(), "member", status.Member, "shards", len(status.Shards))
		tell(log, "READY=1")
	}
	<-ctx.Done()
	closed := door.Close()
	admin.stop()
	backupsEnd()
	if node.Err() != nil {
		return closed
	}
	tell(log, "STOPPING=1")
	ctx, cancel := context.Background(), func() {} // Shutdown limits its time itself
	if c.Ephemeral {
		ctx, cancel = context.WithTimeout(ctx, leaveTime)
	}
	defer cancel()
	return errors.Join(closed, node.Shutdown(ctx))
}

// leaveTime bounds the stop of a member that leaves. A learner takes its place before, if there is
// one, and must have been well for ten seconds.
const leaveTime = 30 * time.Second

// free returns an error if serve cannot listen at all its addresses together. It is called before
// the node starts: a node that founds its directory fixes settings, and the user may want to correct
// those too.
func free(c *config) error {
	ports := [][2]string{{"members", memberPort(c)}, {"gateway", c.Gateway.Listen}}
	if c.Admin != nil {
		ports = append(ports, [2]string{"admin", c.Admin.Listen})
	}
	for _, p := range ports {
		if p[1] == "" {
			continue
		}
		l, err := net.Listen("tcp", p[1])
		if err != nil {
			return fmt.Errorf("%s: %w", p[0], err)
		}
		defer l.Close()
	}
	return nil
}

// memberPort returns where the member listens for the others, as embed.Config.Listen says. It is
// empty for a server that is alone.
func memberPort(c *config) string {
	addr := cmp.Or(c.Advertise, c.Members[c.ID])
	host, port, err := net.SplitHostPort(addr)
	if _, no := netip.ParseAddr(host); err == nil && no != nil && !strings.EqualFold(host, "localhost") {
		addr = net.JoinHostPort("", port)
	}
	return cmp.Or(c.Listen, addr)
}

// readyReport is the time between two log lines about a member that does not serve yet.
const readyReport = 10 * time.Second

// ready waits until the node serves. Meanwhile, it logs from time to time why it does not.
func ready(ctx context.Context, node *embed.Node, log *slog.Logger) error {
	for {
		patience, cancel := context.WithTimeout(ctx, readyReport)
		err := node.Ready(patience)
		cancel()
		if errors.Is(err, embed.ErrNotSeeded) {
			return nil // the node has logged it as an error, and serves what it has
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
		log.Warn("not serving yet", "cause", err)
	}
}

// onHangUp reads the files with certificates and users again at every SIGHUP, until stop is called.
func onHangUp(signals <-chan os.Signal, node *embed.Node, door *gateway.Gateway, admin *adminServer, log *slog.Logger) (stop func()) {
	done := make(chan struct{})
	go func() {
		for {
			select {
			case <-signals:
			case <-done:
				return
			}
			if changed, err := door.ReloadUsers(); err != nil {
				log.Warn("the users were not read again at SIGHUP", "cause", err)
			} else if changed {
				log.Info("the users were read again at SIGHUP")
			}
			members, err := node.ReloadTLS()
			clients, clientsErr := door.ReloadTLS()
			admins, adminsErr := admin.reloadTLS()
			if err = errors.Join(err, clientsErr, adminsErr); err != nil {
				log.Warn("the certificates were not all read again at SIGHUP", "cause", err)
				continue
			}
			log.Info("the certificates were read again at SIGHUP", "changed", members || clients || admins)
		}
	}()
	return func() { close(done) }
}

// isEcho reports whether a signal only repeats the first one. timeout(1), and some tools that run
// containers, send a signal to the process and then to its group.
func isEcho(first, s os.Signal, after time.Duration) bool {
	return s == first && after < 100*time.Millisecond
}

// untilSignal returns a context that ends at the first signal to stop. A second signal ends the
// process.
func untilSignal(ctx context.Context, log *slog.Logger, endLog func()) (_ context.Context, stop func()) {
	signal.Ignore(syscall.SIGPIPE) // go on when nobody reads the log any more
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		var first os.Signal
		var came time.Time
		for {
			select {
			case s := <-signals:
				if first != nil {
					if isEcho(first, s, time.Since(came)) {
						continue
					}
					log.Error("ended at once: a second signal arrived", "signal", s.String())
					endLog()
					os.Exit(exitFailed)
				}
				first, came = s, time.Now()
				log.Info("stopping", "signal", s.String())
				cancel()
			case <-done:
				return
			}
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(done)
		cancel()
	}
}

// closeInTime closes the audit's file. A disk that hangs must not keep the process.
func closeInTime(journal *audit.File, log *slog.Logger) {
	closed := make(chan error, 1)
	go func() { closed <- journal.Close() }()
	select {
	case err := <-closed:
		if err != nil {
			log.Warn("the audit was not closed", "cause", err)
		}
	case <-time.After(backupEnd):
		log.Warn("the audit was not closed", "cause", errors.New("its disk hangs"))
	}
}
