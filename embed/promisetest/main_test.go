package promisetest

import (
	"testing"

	"github.com/vivarium-go/vivarium/embed/internal/clienttest"
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
