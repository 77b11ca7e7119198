package testkit

import (
	"fmt"
	"strings"
	"sync"
	"testing"
)

// By day a seed is always the same, by night it never is, and the variable decides.
func TestSeed(t *testing.T) {
	t.Setenv(seedVariable, "")
	t.Setenv("VIVARIUM_NIGHT", "")
	r := &seeded{TB: t}
	if got := Seed(r); got != daySeed {
		t.Errorf("the seed is %d, want %d", got, daySeed)
	}
	r.end()
	t.Setenv(seedVariable, "7")
	r = &seeded{TB: t, failed: true}
	if got := Seed(r); got != 7 {
		t.Errorf("the seed is %d, want 7", got)
	}
	r.end()
	if want := "VIVARIUM_SEED=7 go test -run '^TestSeed$'"; !strings.Contains(r.log, want) {
		t.Errorf("it logs %q, want %s", r.log, want)
	}
	first, err := seedBy("", true)
	Must(t, err)
	second, err := seedBy("", true)
	Must(t, err)
	if first == second {
		t.Errorf("two nights have the seed %d", first)
	}
	if seed, err := seedBy("-1", false); err == nil {
		t.Errorf("the seed is %d", seed)
	}
	if got, want := repeat("TestA/b.c", 3, true), `VIVARIUM_NIGHT=1 VIVARIUM_SEED=3 go test -run '^TestA$/^b\.c$'`; got != want {
		t.Errorf("repeat says %s, want %s", got, want)
	}
}

// A test has one generator, also if several goroutines ask. Its numbers follow from its seed and
// its name.
func TestRand(t *testing.T) {
	t.Setenv(seedVariable, "7")
	numbers := func(t *seeded) (list []uint64) {
		list = make([]uint64, 100)
		var all sync.WaitGroup
		for i := range list {
			all.Go(func() { list[i] = Rand(t).Uint64() })
		}
		all.Wait()
		return list
	}
	seen := make(map[uint64]int)
	for i := range 2 { // the same test twice
		r := &seeded{TB: t}
		for _, n := range numbers(r) {
			seen[n]++
		}
		if r.end(); r.log != "" || len(seen) != 100 {
			t.Errorf("run %d: it logs %q, and there are %d numbers", i, r.log, len(seen))
		}
	}
	for n, times := range seen {
		if times != 2 {
			t.Errorf("%d came %d times", n, times)
		}
	}
	t.Run("another", func(t *testing.T) {
		if n := Rand(t).Uint64(); seen[n] > 0 {
			t.Error("a subtest has the numbers of its test")
		}
	})
}

// By night too, a test and its subtests have one seed, so that one number repeats them.
func TestSeed_OfSubtests(t *testing.T) {
	t.Setenv(seedVariable, "")
	t.Setenv("VIVARIUM_NIGHT", "1")
	seed := Seed(t)
	t.Run("part", func(t *testing.T) {
		if got := Seed(t); got != seed {
			t.Errorf("the seed is %d, its test has %d", got, seed)
		}
	})
}

// A seeded test records what it logs, and ends when it is told to.
type seeded struct {
	testing.TB
	failed bool
	log    string
	mu     sync.Mutex
	after  []func()
}

func (s *seeded) Failed() bool { return s.failed }

func (s *seeded) Logf(format string, args ...any) { s.log += fmt.Sprintf(format, args...) }

func (s *seeded) Cleanup(fn func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.after = append(s.after, fn)
}

func (s *seeded) end() {
	for _, fn := range s.after {
		fn()
	}
}
