package embedtest

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"

	"github.com/vivarium-go/vivarium/internal/testkit"
)

// In a bubble nothing of a member is in a real directory, unless the test names one.
func TestBubble_HasItsFilesInMemory(t *testing.T) {
	named := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		for _, dir := range []string{"", named} {
			ens := New(t, 1, Options{Dir: dir})
			_, err := os.Stat(filepath.Join(ens.Dir(1), "identity"))
			if inMemory := err != nil; inMemory != (dir == "") {
				t.Errorf("with the directory %q: %v", dir, err)
			}
		}
	})
}

// Of the names that a member did not sync, a power cut leaves some. The seed says which.
func TestPowerCut_LeavesSome(t *testing.T) {
	left := func(seed uint64) (names string) {
		synctest.Test(t, func(t *testing.T) {
			ens := New(t, 1, Options{Seed: seed})
			for i := range 20 {
				f, err := ens.disks[1].OpenFile(fmt.Sprint("/", i), os.O_RDWR|os.O_CREATE, 0o666)
				testkit.Must(t, err)
				testkit.Must(t, f.Close())
			}
			ens.PowerCut(1)
			for i := range 20 {
				if _, err := ens.disks[1].Stat(fmt.Sprint("/", i)); err == nil {
					names += fmt.Sprint(" ", i)
				}
			}
		})
		return names
	}
	one, another := left(1), left(2)
	if one == "" || one == another {
		t.Errorf("seed 1 left%s, seed 2 left%s", one, another)
	}
}
