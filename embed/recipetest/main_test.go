package recipetest

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed/internal/clienttest"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/internal/testkit/sessionsflag"
	"github.com/vivarium-go/vivarium/internal/testkit/shardsflag"
)

var (
	seedFlag      = flag.Uint64("seed", 0, "the random choices of the schedules; zero means those of VIVARIUM_SEED")
	schedulesFlag = flag.Int("schedules", 0, "how many schedules with every fault each test plays; zero means a short one")
	longFlag      = flag.Duration("long", 0, "each test plays schedules with every fault until so much time has passed")
)

func init() {
	shardsflag.Define()
	sessionsflag.Define(clienttest.Over)
}

// long reports whether schedules have every fault, and log all that happened if they fail.
func long() bool { return *schedulesFlag > 0 || *longFlag > 0 }

// inTime plays short schedules in virtual time by day.
func inTime(t *testing.T, play func(t *testing.T)) {
	if long() {
		play(t)
		return
	}
	testkit.Bubble(t, play)
}

// schedules plays one short schedule, or as many long ones as the flags say.
func schedules(t *testing.T, play func(t *testing.T, seed uint64)) {
	before := runtime.NumGoroutine()
	seed := *seedFlag
	if seed == 0 {
		seed = testkit.Seed(t)
	}
	began := time.Now()
	for i := 0; i < max(1, *schedulesFlag) || time.Since(began) < *longFlag; i++ {
		if i > 0 {
			seed = rand.New(rand.NewPCG(seed, 0)).Uint64()
		}
		if !t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) { inTime(t, func(t *testing.T) { play(t, seed) }) }) {
			return // goroutines that are left would disturb the next one
		}
	}
	for deadline := time.Now().Add(time.Minute); runtime.NumGoroutine() > before; runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines, %d before\n%s", runtime.NumGoroutine(), before, testkit.Stacks())
		}
	}
}

var must = testkit.Must

var errNone = errors.New("no error")

// is returns an error unless err matches one of some errors.
func is(err error, want ...error) error {
	for _, w := range want {
		if errors.Is(err, w) {
			return nil
		}
	}
	return fmt.Errorf("want %v, got %w", want, cmp.Or(err, errNone))
}
