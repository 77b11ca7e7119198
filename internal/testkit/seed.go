package testkit

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// seedVariable decides the seed of all tests.
const seedVariable = "VIVARIUM_SEED"

// daySeed is the seed by day, when one commit gets one answer.
const daySeed = 1

// Seed returns what the random choices of a test follow from. By day it is always the same. By
// night it is another one for each test, which subtests share with their test if that has one. If
// the environment variable VIVARIUM_SEED is set, it decides. A test that fails logs its seed, and
// how to repeat it.
func Seed(t testing.TB) uint64 {
	t.Helper()
	return chanceOf(t).seed
}

// Rand returns the random choices of a test. They follow from Seed and from the test's name, so
// that subtests make different ones. Each call for one t returns the same generator, which several
// goroutines may use at once.
func Rand(t testing.TB) *rand.Rand {
	t.Helper()
	return chanceOf(t).rand
}

// A chance is what Seed and Rand return for a test.
type chance struct {
	seed uint64
	rand *rand.Rand
}

var chances = struct {
	sync.Mutex
	of map[testing.TB]*chance // the tests that run
}{of: make(map[testing.TB]*chance)}

func chanceOf(t testing.TB) *chance {
	t.Helper()
	chances.Lock()
	defer chances.Unlock()
	if c := chances.of[t]; c != nil {
		return c
	}
	seed, err := seedBy(os.Getenv(seedVariable), Night())
	Must(t, err)
	for other, c := range chances.of {
		if root(other) == root(t) {
			seed = c.seed // or one number would not repeat all of them
		}
	}
	name := fnv.New64a()
	_, _ = name.Write([]byte(t.Name()))
	made := &chance{seed, rand.New(&locked{source: rand.NewPCG(seed, name.Sum64())})}
	chances.of[t] = made
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the seed is %d; repeat with: %s", seed, repeat(t.Name(), seed, Night()))
		}
		chances.Lock()
		defer chances.Unlock()
		delete(chances.of, t)
	})
	return made
}

// root returns the name of the test that a subtest belongs to.
func root(t testing.TB) string {
	name, _, _ := strings.Cut(t.Name(), "/")
	return name
}

// seedBy returns the seed that the environment variable sets, or else the seed of the day or of a
// night.
func seedBy(variable string, night bool) (uint64, error) {
	switch {
	case variable != "":
		seed, err := strconv.ParseUint(variable, 0, 64)
		if err != nil {
			return 0, fmt.Errorf("%s must be a number without a sign: %w", seedVariable, err)
		}
		return seed, nil
	case night:
		return rand.Uint64(), nil
	}
	return daySeed, nil
}

// repeat returns the command that runs a test again with a seed.
func repeat(test string, seed uint64, night bool) string {
	parts := strings.Split(test, "/")
	for i, p := range parts {
		parts[i] = "^" + regexp.QuoteMeta(p) + "$"
	}
	command := fmt.Sprintf("%s=%d go test -run '%s'", seedVariable, seed, strings.Join(parts, "/"))
	if night {
		command = "VIVARIUM_NIGHT=1 " + command
	}
	return command
}

// A locked source may be used by several goroutines. A rand.Rand has no state but its source's.
type locked struct {
	mu     sync.Mutex
	source rand.Source
}

func (l *locked) Uint64() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.source.Uint64()
}
