//go:build unix

// Planted measures how good ./sim is at finding bugs. It plants bugs in a copy of this repository,
// one at a time, and lets ./sim look for each:
//
//	go run ./planted [-virtual 24h] [-seed N] [name...]
//	go run ./planted -real 30m [-seed N] [name...]
//
// The second form lets ./chaos look, to compare the two.
//
// The bugs are the patches in planted/bugs. The first line of each says what it breaks. For each
// bug planted prints how much of the campaign's time passed before the first violation, and which
// it was. Two campaigns look at the same time, one with a single shard and one with four.
//
// What the bug breaks may happen in no campaign. Then the second line of the patch names a test,
// and that is run instead:
//
//	Found by ./engine/steer TestPlan.
//
// The exit status is 1 if a bug is missed.
package main

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/vivarium-go/vivarium/bench/internal/simbuild"
	"github.com/vivarium-go/vivarium/internal/testkit/child"
)

//go:embed bugs/*.patch
var bugs embed.FS

func main() {
	virtual := flag.Duration("virtual", 24*time.Hour, "how long each campaign looks for a bug, in virtual time")
	real := flag.Duration("real", 0, "let ./chaos look instead, so long in real time; zero means ./sim")
	seed := flag.Uint64("seed", 0, "seed of the campaigns; zero means a new one")
	flag.Parse()
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	p := program{length: *virtual, flag: "-virtual", build: simbuild.Build}
	if *real > 0 {
		p = program{length: *real, flag: "-d", build: buildChaos}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	missed, err := run(ctx, flag.Args(), p, *seed)
	if err != nil {
		fmt.Fprintln(os.Stderr, "planted:", err)
		os.Exit(2)
	}
	if missed > 0 {
		os.Exit(1)
	}
}

// A program runs a campaign.
type program struct {
	length time.Duration
	flag   string // of the length
	build  func(ctx context.Context, bench, dir string) (name string, err error)
}

func buildChaos(ctx context.Context, bench, dir string) (name string, err error) {
	name = filepath.Join(dir, "chaos")
	cmd := exec.CommandContext(ctx, "go", "build", "-o", name, "./chaos")
	cmd.Dir = bench
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return name, nil
}

// names returns the names of all bugs.
func names() (all []string, err error) {
	files, err := fs.Glob(bugs, "bugs/*.patch")
	for _, file := range files {
		all = append(all, strings.TrimSuffix(path.Base(file), ".patch"))
	}
	return all, err
}

// run looks for the named bugs, or for all, and returns how many were missed.
func run(ctx context.Context, only []string, p program, seed uint64) (missed int, err error) {
	all, err := names()
	if err != nil {
		return 0, err
	}
	for _, name := range only {
		if !slices.Contains(all, name) {
			return 0, fmt.Errorf("there is no bug %q; there are %s", name, strings.Join(all, ", "))
		}
	}
	if len(only) > 0 {
		all = only
	}
	g, err := newGarden(ctx)
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(g.dir)
	fmt.Printf("seed %d, up to %s %v for each of %d bugs\n", seed, p.flag, p.length, len(all))
	for _, name := range all {
		begun := time.Now()
		f, err := g.look(ctx, name, p, seed)
		if err != nil {
			return missed, fmt.Errorf("%s: %w", name, err)
		}
		took := time.Since(begun).Round(time.Second)
		switch {
		case f.what == "":
			missed++
			fmt.Printf("%-34s NOT FOUND (%v)\n", name, took)
		case f.shards == 0:
			fmt.Printf("%-34s (%v): %s\n", name, took, f.what)
		default:
			fmt.Printf("%-34s %10v  with %d shards (%v): %s\n", name, f.at.Round(time.Second), f.shards, took, f.what)
		}
	}
	return missed, nil
}

// A garden is a copy of the repository.
type garden struct{ dir string }

func newGarden(ctx context.Context) (*garden, error) {
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/vivarium-go/vivarium").Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	dir, err := os.MkdirTemp("", "planted-")
	if err != nil {
		return nil, err
	}
	g := &garden{dir}
	if err := os.CopyFS(filepath.Join(dir, "copy"), os.DirFS(strings.TrimSpace(string(root)))); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return g, nil
}

// bench is the module of ./sim in the copy.
func (g *garden) bench() string { return filepath.Join(g.dir, "copy", "bench") }

// read returns the patch of a bug, and the package and the name of the test that finds it. Without
// such a test a campaign is to find it.
func read(name string) (patch []byte, pkg, test string, err error) {
	patch, err = bugs.ReadFile("bugs/" + name + ".patch")
	if m := foundBy.FindSubmatch(patch); m != nil {
		pkg, test = string(m[1]), string(m[2])
	}
	return patch, pkg, test, err
}

// foundBy is the second line of a patch that names a test.
var foundBy = regexp.MustCompile(`^.*\nFound by (\./\S+) (\w+)\.\n`)

// apply plants a bug, or removes it with the option -R.
func (g *garden) apply(ctx context.Context, name string, options ...string) error {
	patch, _, _, err := read(name)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "git", append([]string{"apply"}, options...)...)
	cmd.Dir, cmd.Stdin = filepath.Join(g.dir, "copy"), bytes.NewReader(patch)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("git apply: %w\n%s", err, out)
	}
	return nil
}

// A finding is a violation, or a test that fails.
type finding struct {
	shards int           // of the campaign; zero for a test
	at     time.Duration // of the campaign
	what   string        // empty if nothing was found
}

// look plants a bug, looks for it, and removes it.
func (g *garden) look(ctx context.Context, name string, p program, seed uint64) (found finding, err error) {
	_, pkg, test, err := read(name)
	if err != nil {
		return found, err
	}
	if err := g.apply(ctx, name); err != nil {
		return found, err
	}
	if test != "" {
		found, err = g.test(ctx, pkg, test)
	} else {
		found, err = g.campaigns(ctx, p, seed)
	}
	return found, errors.Join(err, g.apply(context.WithoutCancel(ctx), name, "-R"))
}

// test runs a test. It finds the bug if it fails, or if its process ends.
func (g *garden) test(ctx context.Context, pkg, test string) (finding, error) {
	cmd := exec.CommandContext(ctx, "go", "test", "-count=1", "-vet=off", "-run", "^"+test+"$", pkg)
	cmd.Dir = filepath.Join(g.dir, "copy")
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // ends the test's process too
	out, err := cmd.CombinedOutput()
	switch {
	case err == nil:
		return finding{}, nil
	case ctx.Err() == nil && (bytes.Contains(out, []byte("--- FAIL: "+test)) || crash.Match(out)):
		return finding{what: test + " fails"}, nil
	}
	return finding{}, fmt.Errorf("go test: %w\n%s", err, tail(out))
}

// campaigns looks until one campaign finds something.
func (g *garden) campaigns(ctx context.Context, p program, seed uint64) (found finding, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type result struct {
		finding
		err error
	}
	built, err := p.build(ctx, g.bench(), g.dir)
	if err != nil {
		return found, err
	}
	counts := []int{1, 4}
	results := make(chan result, len(counts))
	for _, shards := range counts {
		go func() {
			f, err := g.campaign(ctx, shards, built, p.flag, p.length.String(), "-seed", strconv.FormatUint(seed, 10))
			results <- result{f, err}
		}()
	}
	for range counts {
		r := <-results
		if found.what != "" {
			continue // the other one had found it
		}
		if r.what != "" {
			found = r.finding
			cancel()
		}
		err = errors.Join(err, r.err)
	}
	if found.what != "" {
		err = nil
	}
	return found, err
}

var (
	// violation is a line about a broken promise: its time in seconds, and which.
	violation = regexp.MustCompile(`(?m)([0-9.]+)s  VIOLATION (.*)$`)
	// progress is any line of ./sim with its virtual time.
	progress = regexp.MustCompile(`(?m)^\[.*\] +([0-9.]+)s  .*$`)
	// crash is why a campaign ended early: the process panicked, or virtual time stood still.
	crash = regexp.MustCompile(`(?m)^(panic: .*|fatal error: .*|sim: virtual time .*)$`)
)

// campaign runs a program's build. A violation ends the round in which it is found.
func (g *garden) campaign(ctx context.Context, shards int, built string, args ...string) (finding, error) {
	var out bytes.Buffer
	dir := filepath.Join(g.dir, "run-"+strconv.Itoa(shards))
	defer os.RemoveAll(dir)
	cmd := exec.CommandContext(ctx, built, append(args, "-shards", strconv.Itoa(shards), "-dir", dir)...)
	cmd.Stdout, cmd.Stderr = &out, &out
	err := child.Start(cmd)
	if err == nil {
		err = cmd.Wait()
	}
	var exit *exec.ExitError
	m, c := violation.FindStringSubmatch(out.String()), crash.FindStringSubmatch(out.String())
	if all := progress.FindAllStringSubmatch(out.String(), -1); m == nil && c != nil && len(all) > 0 {
		m = []string{"", all[len(all)-1][1], c[1]}
	}
	switch {
	case m != nil:
		seconds, err := strconv.ParseFloat(m[1], 64)
		return finding{shards, time.Duration(seconds * float64(time.Second)), m[2]}, err
	case err == nil || ctx.Err() != nil:
		return finding{}, nil
	case errors.As(err, &exit):
		return finding{}, fmt.Errorf("the campaign ended without a violation: %w\n%s", err, tail(out.Bytes()))
	default:
		return finding{}, err
	}
}

// tail returns the end of an output.
func tail(out []byte) []byte { return out[max(0, len(out)-4000):] }
