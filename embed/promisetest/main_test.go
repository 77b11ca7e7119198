package promisetest

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/internal/clienttest"
	"github.com/vivarium-go/vivarium/embed/internal/inside"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/internal/testkit/membersflag"
	"github.com/vivarium-go/vivarium/internal/testkit/sessionsflag"
	"github.com/vivarium-go/vivarium/internal/testkit/shardsflag"
)

var (
	must    = testkit.Must
	bounded = testkit.Context
	until   = testkit.Until
)

func init() {
	shardsflag.Define()
	sessionsflag.Define(clienttest.Over)
	membersflag.Define()
}

// run runs a subtest beside others, in a bubble of its own.
func run(t *testing.T, name string, test func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		testkit.Bubble(t, test)
	})
}

// tooSlow ends a test that cannot judge, because the machine was too slow for its timeouts. By day
// it fails: no machine is slow in virtual time.
func tooSlow(t *testing.T, format string, args ...any) {
	t.Helper()
	if !testkit.Night() {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

// settle waits until everything waits for time to pass, or for the test. In real time nobody knows
// when that is; a while is long enough on most machines.
func settle() {
	if testkit.Night() {
		<-time.After(200 * time.Millisecond)
		return
	}
	synctest.Wait()
}

// apart makes every link whole, and lets messages take a while on each. In virtual time they take
// no time otherwise.
func apart(ens *embedtest.Ensemble, delay time.Duration) {
	for _, from := range ens.Places() {
		for _, to := range ens.Places() {
			ens.Faults(from).SetLink(to, embedtest.Link{Delay: delay})
		}
	}
}

// alone starts a node that is its own ensemble.
func alone(t *testing.T, seams inside.Seams) *embed.Node {
	t.Helper()
	return embedtest.New(t, 1, embedtest.Options{Config: func(c *embed.Config) { c.Inside = &seams }}).Node(1)
}
