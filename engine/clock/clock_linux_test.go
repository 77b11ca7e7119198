package clock

import (
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"
)

// Boot runs on while the machine sleeps. A machine that has never slept does not show the
// difference, but a time namespace does: inside it, CLOCK_BOOTTIME is shifted, and CLOCK_MONOTONIC
// is not.
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
		t.Skipf("cannot make a time namespace here: %v, %q", err, out)
	}
	child := asleep(os.Args[0], "-test.run=^TestBootClockCountsSleep$")
	child.Env = append(os.Environ(), inside+"=1")
	before := System().Boot()
	out, err := child.CombinedOutput()
	after := System().Boot()
	var said int64
	if _, scan := fmt.Sscanf(string(out), "boot %d", &said); err != nil || scan != nil {
		t.Fatalf("cannot read the clock of the child: %v, %q", err, out)
	}
	if boot := time.Duration(said) - slept; boot < before || boot > after {
		t.Errorf("Boot is %v after a sleep of %v; without the sleep it is %v to %v", time.Duration(said), slept, before, after)
	}
}
