//go:build linux

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/vivarium-go/vivarium/bench/internal/measure"
	"github.com/vivarium-go/vivarium/internal/wire"
)

// The exit statuses.
const (
	exitWell     = 0
	exitTooMuch  = 1
	exitUnusable = 2
)

func main() {
	length := flag.Duration("d", 2*time.Minute, "how long the greedy clients take what they can")
	only := flag.String("only", "", "only the greeds whose names have this in them")
	flag.Parse()
	if *length <= 0 || flag.NArg() > 0 {
		flag.Usage()
		os.Exit(exitUnusable)
	}
	well, err := run(*length, *only, os.Stdout)
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "greedy:", err)
		os.Exit(exitUnusable)
	case !well:
		os.Exit(exitTooMuch)
	}
}

// run runs an ensemble and its clients, and reports. It returns false if somebody got too much or too
// little.
func run(length time.Duration, only string, out io.Writer) (well bool, err error) {
	dir, err := os.MkdirTemp("", "greedy-")
	if err != nil {
		return false, err
	}
	defer func() {
		if err == nil {
			err = os.RemoveAll(dir)
		} else {
			err = fmt.Errorf("%w: the logs are in %s", err, dir)
		}
	}()
	all, err := found(dir)
	defer func() {
		for _, m := range all {
			m.kill()
		}
	}()
	if err != nil {
		return false, err
	}
	if err := fill(all[0]); err != nil {
		return false, fmt.Errorf("fill the tree: %w", err)
	}
	for i, m := range all {
		if err := m.look(); err != nil {
			return false, err
		}
		fmt.Fprintf(out, "member %d, before: %d MiB resident, %d files\n", i+1, m.resident>>20, m.open)
	}
	alone, cancel := context.WithTimeout(context.Background(), quiet)
	defer cancel()
	for _, f := range beFair(alone, all) {
		fmt.Fprintln(out, "alone:", f)
	}
	begin := make([]time.Duration, size)
	for i, m := range all {
		begin[i] = measure.CPUOf(m.cmd.Process.Pid)
	}
	ctx, cancel := context.WithTimeout(context.Background(), length)
	defer cancel()
	var wg sync.WaitGroup
	for kind, g := range greeds() {
		if strings.Contains(g.name, only) {
			wg.Go(func() { g.run(ctx, kind, all) })
		}
	}
	var looked error
	wg.Go(func() {
		defer cancel()
		for ; ctx.Err() == nil && looked == nil; sleep(ctx, beat) {
			for _, m := range all {
				looked = errors.Join(looked, m.look())
			}
		}
	})
	list := beFair(ctx, all)
	wg.Wait()
	for i, m := range all {
		m.cpu = measure.CPUOf(m.cmd.Process.Pid) - begin[i]
	}
	return report(out, all, list), looked
}

// fill creates what the greedy ones ask for.
func fill(m *member) error {
	s, err := openSession(m.gateway, "")
	if err != nil {
		return err
	}
	defer s.close()
	err = errors.Join(s.call(create("/fair", nil)), s.call(create(walked, nil)), s.call(create(listed, nil)), s.call(create(large, make([]byte, 1_000_000))))
	for i := 0; i < walkedMany && err == nil; i++ {
		err = s.call(create(fmt.Sprint(walked, "/", i), make([]byte, walkedSize)))
	}
	for i := 0; i < listedMany && err == nil; i += 1000 {
		q := wire.Request{Operation: wire.Operation{Op: wire.OpMulti}}
		for k := range 1000 {
			q.Ops = append(q.Ops, create(fmt.Sprintf("%s/a-name-%08d", listed, i+k), nil).Operation)
		}
		err = s.call(q)
	}
	return err
}

// report prints what the members took and what the fair clients got.
func report(out io.Writer, all []*member, list []*fair) (well bool) {
	well = true
	for i, m := range all {
		fmt.Fprintf(out, "member %d: at most %d MiB resident, at the end %d MiB, at most %d files of %d, %v of a core\n",
			i+1, m.resident>>20, m.stayed>>20, m.open, files, m.cpu.Round(100*time.Millisecond))
		well = well && m.resident <= most && m.open < files
	}
	for _, f := range list {
		fmt.Fprintln(out, f)
		well = well && f.failed == 0
	}
	return well
}
