package clock

import (
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"
)

// The clock of deadlines runs on while the machine sleeps. A machine that has never slept does not show
// the difference, but a time namespace does: in it the clock that counts sleep is another than outside,
// and CLOCK_MONOTONIC is the same.
func TestBootClockCountsSleep(t *testing.T) {
	const inside = "VIVARIUM_BOOT_CLOCK"
	if os.Getenv(inside) != "" {
		fmt.Println("boot", int64(System().Boot()))
		os.Exit(0)
	}
	const slept = 100_000 * time.Second
	asleep := func(command ...string) *exec.Cmd {
		args := []string{"--user", "--map-root-user", "--time", "--boottime", fmt.Sprint(int(slept.Seconds()))}
		return exec.Command("unshare", append(args, command...)...)
	}
	if out, err := asleep("true").CombinedOutput(); err != nil {
		t.Skipf("no time namespace is to be had here: %v, %q", err, out)
	}
	child := asleep(os.Args[0], "-test.run=^TestBootClockCountsSleep$")
	child.Env = append(os.Environ(), inside+"=1")
	before := System().Boot()
	out, err := child.CombinedOutput()
	after := System().Boot()
	var said int64
	if _, scan := fmt.Sscanf(string(out), "boot %d", &said); err != nil || scan != nil {
		t.Fatalf("the clock was not read: %v, %q", err, out)
	}
	if boot := time.Duration(said) - slept; boot < before || boot > after {
		t.Errorf("the clock says %v where the machine has slept for %v, and %v to %v where it has not", time.Duration(said), slept, before, after)
	}
}
