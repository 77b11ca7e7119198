//go:build unix

package processtest

import (
	"flag"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/internal/testkit/shardsflag"
)

var (
	seedFlag   = flag.Uint64("seed", 0, "repeat the random choices of a run; zero means those of VIVARIUM_SEED")
	roundsFlag = flag.Int("rounds", 0, "rounds of the tests under load; zero means their own number")
	dirFlag    = flag.String("dir", "", "keep the members' directories and logs here")
)

// memberVariable makes this binary a member of an ensemble instead of a test.
const memberVariable = "VIVARIUM_TEST_MEMBER"

func TestMain(m *testing.M) {
	if os.Getenv(memberVariable) != "" {
		os.Exit(runMember())
	}
	shardsflag.Define()
	flag.Parse()
	os.Exit(m.Run())
}

// newRandom returns the source of a test's random choices.
func newRandom(t *testing.T) *rand.Rand {
	seed := *seedFlag
	if seed == 0 {
		seed = testkit.Seed(t)
	}
	return rand.New(rand.NewPCG(seed, 0))
}

// rounds returns how many rounds a test plays by day and by night.
func rounds(day, night int) int {
	switch {
	case *roundsFlag > 0:
		return *roundsFlag
	case !testkit.Night():
		return day
	case underRace:
		return (night + 1) / 2
	}
	return night
}

// attempts calls try until it returns true, with a session timeout that doubles each time. A try is
// false if a busy machine may have ended a session before the test did. It ends the test if that
// happens each time: no machine is so busy, so the sessions end too early.
func attempts(t *testing.T, timeout time.Duration, try func(timeout time.Duration) bool) {
	t.Helper()
	for range 5 {
		if try(timeout) || t.Failed() {
			return
		}
		t.Logf("with a timeout of %v, something else ended a session", timeout)
		timeout *= 2
	}
	t.Fatal("something else ends a session each time")
}

// workDir returns a directory for a test's members.
func workDir(t *testing.T) string {
	t.Helper()
	if *dirFlag == "" {
		return t.TempDir()
	}
	if err := os.MkdirAll(*dirFlag, 0o755); err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp(*dirFlag, strings.ReplaceAll(t.Name(), string(filepath.Separator), "-")+"-")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("kept in %s", dir)
	return dir
}
