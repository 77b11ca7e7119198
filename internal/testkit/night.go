package testkit

import (
	"os"
	"testing"
	"testing/synctest"
)

// Night reports whether the tests run by night, which is what the environment variable
// VIVARIUM_NIGHT says. By night there is time for what needs real time, or luck.
func Night() bool { return os.Getenv("VIVARIUM_NIGHT") != "" }

// ByNight skips the rest of a test by day. why completes the sentence "by day this is not tested,
// because".
func ByNight(t testing.TB, why string) {
	t.Helper()
	if !Night() {
		t.Skip("only by night (VIVARIUM_NIGHT=1), because " + why)
	}
}

// Bubble runs a test in virtual time, in a bubble of testing/synctest. By night it runs in real
// time. In a bubble a test must not call Run or Parallel; it may do so before it calls Bubble.
func Bubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	if Night() {
		test(t)
		return
	}
	synctest.Test(t, test)
}
