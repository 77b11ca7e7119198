//go:build unix

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vivarium-go/vivarium/bench/internal/simbuild"
	"github.com/vivarium-go/vivarium/internal/testkit/child"
)

// launch builds this program for virtual time and runs it. After a violation it shrinks the list of
// faults. It returns the exit status.
func launch(o options) int {
	dir, err := os.MkdirTemp("", "sim-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "sim:", err)
		return exitUsage
	}
	defer os.RemoveAll(dir)
	program, err := simbuild.Build(context.Background(), "", dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, "sim:", err)
		return exitUsage
	}
	l := &launcher{options: o, program: program, dir: dir, list: filepath.Join(dir, "cycles")}
	if err := l.settle(); err != nil {
		fmt.Fprintln(os.Stderr, "sim:", err)
		return exitUsage
	}
	status := l.run(os.Stdout, os.Stderr, o.Round, o.Cycles)
	l.Dir = filepath.Join(dir, "shrink")
	l.profile = "" // of the whole campaign only
	if broken(status) && o.shrink > 0 {
		l.shrinkAll()
	}
	return status
}

// A launcher runs the program that simbuild.Build has built.
type launcher struct {
	options
	program string
	dir     string    // the program's working directory
	list    string    // the file for the cycles of the newest run
	until   time.Time // when shrinking ends
}

// settle prepares the working directory. Dragonboat's workers look for work five times a second,
// however long a tick is, in case that they have missed a message; a file there says how often. At
// a large scale they would do little else.
func (l *launcher) settle() error {
	for _, path := range []*string{&l.Dir, &l.profile} {
		if *path == "" {
			continue
		}
		abs, err := filepath.Abs(*path)
		if err != nil {
			return err
		}
		*path = abs
	}
	settings := fmt.Sprintf(`{"NodeReloadMillisecond": %d}`, 200*l.Scale)
	return os.WriteFile(filepath.Join(l.dir, "dragonboat-soft-settings.json"), []byte(settings), 0o644)
}

// run runs the campaign, or only some cycles of a round, and returns the exit status.
func (l *launcher) run(out, errs io.Writer, round int, cycles []int) int {
	if err := os.Remove(l.list); err != nil && !errors.Is(err, os.ErrNotExist) {
		fmt.Fprintln(os.Stderr, "sim:", err)
	}
	cmd := exec.Command(l.program, l.args(round, cycles)...)
	cmd.Dir = l.dir
	cmd.Args = append(cmd.Args, "-list", l.list, "-dir", l.Dir)
	if l.profile != "" {
		cmd.Args = append(cmd.Args, "-cpuprofile", l.profile)
	}
	cmd.Stdout, cmd.Stderr = out, errs
	err := child.Start(cmd)
	if err == nil {
		err = cmd.Wait()
	}
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit) && exit.ExitCode() == exitUsage && !errors.Is(l.listed(), os.ErrNotExist):
		return exitPanicked // a panic has the same status as a wrong flag, but not before a round
	case errors.As(err, &exit):
		return exit.ExitCode()
	case err != nil:
		fmt.Fprintln(os.Stderr, "sim:", err)
		return exitUsage
	}
	return exitWell
}

// broken reports whether a run with this exit status broke a promise. A run that could not be made
// says nothing.
func broken(status int) bool { return status != exitWell && status != exitUsage }

// again runs some cycles of a round and leaves nothing behind.
func (l *launcher) again(out io.Writer, round int, cycles []int) int {
	defer os.RemoveAll(l.Dir)
	return l.run(out, out, round, cycles)
}

// listed returns whether the list of cycles can be read.
func (l *launcher) listed() error {
	_, err := os.Stat(l.list)
	return err
}

// cycles returns the last round of the newest run, and its cycles.
func (l *launcher) cycles() (round int, cycles []int) {
	text, err := os.ReadFile(l.list)
	if err != nil {
		return 0, nil
	}
	for line := range strings.Lines(string(text)) {
		words := strings.SplitN(line, " ", 3)
		r, err := strconv.Atoi(words[0])
		if err != nil || len(words) < 2 {
			continue
		}
		if r != round {
			round, cycles = r, nil
		}
		if n, err := strconv.Atoi(words[1]); err == nil {
			cycles = append(cycles, n)
		}
	}
	return round, cycles
}

const (
	// tries is how often a list may succeed before it counts as one that does not fail.
	tries = 2
	// proofs is how often the shrunk list runs.
	proofs = 20
)

// shrinkAll looks for the cycles that the violation needs, and says how often they suffice.
func (l *launcher) shrinkAll() {
	round, cycles := l.cycles()
	if round == 0 {
		return
	}
	l.until = time.Now().Add(l.shrink)
	fmt.Printf("\nround %d had %d cycles of faults; looking for those that the violation needs, for at most %v\n", round, len(cycles), l.shrink)
	if !l.fails(round, cycles) {
		fmt.Printf("the round did not fail again in %d runs: its faults are fixed, but not every interleaving\n", tries)
		return
	}
	cycles = ddmin(cycles, func(some []int) bool {
		failed := l.fails(round, some)
		fmt.Printf("  %d cycles: failed %v\n", len(some), failed)
		return failed
	})
	failures := 0
	var last bytes.Buffer
	for range proofs {
		var out bytes.Buffer
		if broken(l.again(&out, round, cycles)) {
			failures++
			last = out
		}
	}
	fmt.Printf("left are the cycles %s, which failed in %d of %d runs: repeat with\n  %s\n", join(cycles), failures, proofs, l.repeat(round, cycles))
	for line := range strings.Lines(last.String()) {
		if strings.Contains(line, "VIOLATION") || strings.HasPrefix(line, "panic:") || strings.HasPrefix(line, "fatal error:") {
			fmt.Print(line)
		}
	}
}

// fails reports whether some cycles of a round break a promise in one of a few runs. Once the time
// for shrinking is over, it reports false.
func (l *launcher) fails(round int, cycles []int) bool {
	for range tries {
		if time.Now().After(l.until) {
			return false
		}
		if broken(l.again(io.Discard, round, cycles)) {
			return true
		}
	}
	return false
}

// ddmin returns a part of the list that still fails, of which no single element can be left out. It
// is Zeller's algorithm of that name, without the step that tries each piece alone. fails is not
// asked about the whole list, which is known to fail.
func ddmin(list []int, fails func([]int) bool) []int {
	for pieces := 2; len(list) > 1; {
		size := (len(list) + pieces - 1) / pieces
		smaller := false
		for from := 0; from < len(list); from += size {
			rest := slices.Concat(list[:from], list[min(from+size, len(list)):])
			if len(rest) > 0 && fails(rest) {
				list, pieces, smaller = rest, max(pieces-1, 2), true
				break
			}
		}
		switch {
		case smaller:
		case size == 1:
			return list
		default:
			pieces = min(2*pieces, len(list))
		}
	}
	return list
}

// join returns numbers with commas between them.
func join(numbers []int) string {
	words := make([]string, len(numbers))
	for i, n := range numbers {
		words[i] = strconv.Itoa(n)
	}
	return strings.Join(words, ",")
}
