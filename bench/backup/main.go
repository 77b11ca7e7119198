//go:build linux

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/vivarium-go/vivarium/bench/internal/measure"
	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/backup"
	"github.com/vivarium-go/vivarium/internal/testkit/child"
)

// settings are the flags.
type settings struct {
	znodes, size, writers, rounds int
	window                        time.Duration
	dir                           string
}

func main() {
	s, err := parse(os.Args[1:], os.Stderr)
	if err == nil {
		err = s.run(context.Background(), os.Stdout)
	}
	if err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "backup:", err)
		}
		os.Exit(1)
	}
}

func parse(args []string, out io.Writer) (settings, error) {
	var s settings
	set := flag.NewFlagSet("backup", flag.ContinueOnError)
	set.SetOutput(out)
	set.IntVar(&s.znodes, "znodes", 100_000, "how many znodes the tree has")
	set.IntVar(&s.size, "size", 100, "how many bytes of data each has")
	set.IntVar(&s.writers, "writers", 16, "how many writers there are, spread over the members; each waits for one write at a time")
	set.IntVar(&s.rounds, "rounds", 7, "how often each measurement is repeated")
	set.DurationVar(&s.window, "window", 4*time.Second, "how long each measurement takes")
	set.StringVar(&s.dir, "dir", "", "the directory, on the disk to be measured; empty means the directory for temporary files")
	if err := set.Parse(args); err != nil {
		return s, err
	}
	if set.NArg() > 0 {
		return s, fmt.Errorf("%q is not a flag", set.Arg(0))
	}
	if s.znodes < 1 || s.size < 0 || s.writers < 1 || s.rounds < 1 || s.window <= 0 {
		return s, errors.New("numbers must be positive")
	}
	return s, nil
}

// run measures and prints.
func (s settings) run(ctx context.Context, out io.Writer) error {
	dir, err := os.MkdirTemp(s.dir, "backup-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	nodes, err := start(ctx, dir)
	for _, n := range nodes {
		defer n.Close()
	}
	if err != nil {
		return err
	}
	ops, err := s.prepare(ctx, nodes)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "three members in one process, %d znodes of %d bytes, %d writers, %d rounds of %v\n", s.znodes, s.size, s.writers, s.rounds, s.window)
	var p99, rates [2][]float64 // without and with backups
	made := 0
	var took time.Duration
	var size int64
	for round := range s.rounds {
		for turn := range 2 {
			with := (round + turn) % 2 // the first of one round is the last of the next
			end := func() error { return nil }
			if with == 1 {
				end = backups(ctx, follower(nodes), filepath.Join(dir, "file"), func(d time.Duration, bytes int64) {
					made, took, size = made+1, took+d, bytes
				})
			}
			load, err := measure.Run(s.window, ops...)
			if err := errors.Join(err, end()); err != nil {
				return err
			}
			p99[with] = append(p99[with], load.P99.Seconds()*1e3)
			rates[with] = append(rates[with], load.Rate)
			fmt.Fprintf(out, "round %d, %s: %.0f writes/s, p50 %v, p99 %v\n", round+1, []string{"alone ", "beside"}[with], load.Rate, load.P50, load.P99)
		}
	}
	if made == 0 {
		return errors.New("no backup was done in a window: make it longer")
	}
	fmt.Fprintf(out, "\n%d backups of %.1f MB, %v each, with their verification\n", made, float64(size)/1e6, (took / time.Duration(made)).Round(time.Millisecond))
	for i, name := range []string{"alone", "beside a backup"} {
		fmt.Fprintf(out, "%-16s p99 %s ms, %s writes/s\n", name, measure.Spread(p99[i], "%.2f"), measure.Spread(rates[i], "%.0f"))
	}
	fmt.Fprintf(out, "%-16s p99 %s, writes/s %s\n", "ratio", measure.Spread(measure.Ratios(p99[1], p99[0]), "%.2f"), measure.Spread(measure.Ratios(rates[1], rates[0]), "%.2f"))
	return nil
}

// start founds an ensemble.
func start(ctx context.Context, dir string) (nodes []*embed.Node, err error) {
	addrs, err := child.FreeAddrs(3)
	if err != nil {
		return nil, err
	}
	members := map[embed.MemberID]string{1: addrs[0], 2: addrs[1], 3: addrs[2]}
	for id := range embed.MemberID(3) {
		n, err := embed.Start(embed.Config{Dir: filepath.Join(dir, fmt.Sprint(id)), ID: id + 1, Members: members,
			Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))})
		if err != nil {
			return nodes, err
		}
		nodes = append(nodes, n)
	}
	for _, n := range nodes {
		if err := n.Ready(ctx); err != nil {
			return nodes, err
		}
	}
	return nodes, nil
}

// prepare fills the tree, and returns the writers.
func (s settings) prepare(ctx context.Context, nodes []*embed.Node) (ops []func() error, err error) {
	sessions := make([]*embed.Session, len(nodes))
	for i, n := range nodes {
		if sessions[i], err = n.NewSession(ctx, embed.SessionOptions{}); err != nil {
			return nil, err
		}
	}
	data := make([]byte, s.size)
	if _, err := sessions[0].Create(ctx, "/fill", nil, embed.Persistent); err != nil {
		return nil, err
	}
	const batch = 500
	for done := 0; done < s.znodes; done += batch {
		var creates []embed.Op
		for i := done; i < min(done+batch, s.znodes); i++ {
			creates = append(creates, embed.OpCreate(fmt.Sprintf("/fill/%d", i), data, embed.Persistent))
		}
		if _, err := sessions[0].Multi(ctx, creates...); err != nil {
			return nil, err
		}
	}
	payload := make([]byte, 64)
	for i := range s.writers {
		session, path := sessions[i%len(sessions)], fmt.Sprintf("/w%d", i)
		if _, err := session.Create(ctx, path, payload, embed.Persistent); err != nil {
			return nil, err
		}
		ops = append(ops, func() error {
			_, err := session.Set(ctx, path, payload, embed.AnyVersion)
			return err
		})
	}
	return ops, nil
}

// follower returns a member that does not lead.
func follower(nodes []*embed.Node) *embed.Node {
	for _, n := range nodes {
		if s := n.Status(); !s.Leading(s.Shards[0]) {
			return n
		}
	}
	return nodes[0]
}

// backups makes one backup after the other until end is called. end waits for the last one.
func backups(ctx context.Context, n *embed.Node, file string, made func(took time.Duration, bytes int64)) (end func() error) {
	stop, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			select {
			case <-stop:
				ended <- nil
				return
			default:
			}
			began := time.Now()
			info, err := backup.Save(file, func(w io.Writer) error {
				_, err := n.Backup(ctx, w)
				return err
			})
			if err != nil {
				ended <- err
				return
			}
			made(time.Since(began), info.Size)
		}
	}()
	return func() error { close(stop); return <-ended }
}
