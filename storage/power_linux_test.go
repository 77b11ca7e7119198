package storage

import (
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vivarium-go/vivarium/storage/disk"
	"github.com/vivarium-go/vivarium/storage/disk/powercut"
)

// C13.4: A power cut leaves less than a crash does. Each name and each content that was not synced
// may be there or not, independent of all others.
func TestPowerCutAtAnyChangeLeavesAWholeImage(t *testing.T) {
	for name, l := range lives(t) {
		t.Run(name, func(t *testing.T) {
			for at, more := 1+rand.IntN(stride(4)), true; more; at += stride(4) {
				more = t.Run(fmt.Sprint(at), func(t *testing.T) {
					c, root := &cutter{at: at}, restore(t, l.before)
					p := newPlatter(t, root)
					promised := l.run(t, root, func(op disk.Op, name string) error {
						if err := c.cut(op, name); err != nil {
							return err
						}
						p.Watch(op, name)
						return nil
					})
					for root := range cuts(t, p) {
						l.survives(t, root, promised)
					}
					more = c.at <= 0
				}) && more
			}
		})
	}
}

// A process may be killed between renaming the pointer and syncing the directory. Its successor
// sees the new pointer, but a power cut may undo the rename. So the successor must not remove the
// old image yet.
func TestPowerCutAfterAKilledInstallLeavesAWholeImage(t *testing.T) {
	l := lives(t)["install"]
	for at, more := 1+rand.IntN(stride(4)), true; more; at += stride(4) {
		more = t.Run(fmt.Sprint(at), func(t *testing.T) {
			c, root := &cutter{at: at}, restore(t, l.before)
			p := newPlatter(t, root)
			killed := l.run(t, root, func(op disk.Op, name string) error {
				pointer, _ := os.ReadFile(filepath.Join(name, pointerName))
				if op == disk.OpSyncDir && strings.Contains(string(pointer), imageName(2)) {
					return errFault
				}
				p.Watch(op, name)
				return nil
			})
			promised := l.run(t, root, func(op disk.Op, name string) error {
				if err := c.cut(op, name); err != nil {
					return err
				}
				p.Watch(op, name)
				return nil
			})
			for root := range cuts(t, p) {
				l.survives(t, root, max(killed, promised))
			}
			more = c.at <= 0
		}) && more
	}
}

// newPlatter returns the Platter of a directory, and closes it at the end of the test.
func newPlatter(t *testing.T, root string) *powercut.Platter {
	t.Helper()
	seed := rand.Uint64()
	p, err := powercut.New(root, seed)
	must(t, err)
	t.Cleanup(func() {
		must(t, p.Close())
		if t.Failed() {
			t.Logf("power cut seed %d", seed)
		}
	})
	return p
}

// cuts returns copies of the directory as a power cut may leave it, one by one. In two of them,
// chance decides.
func cuts(t *testing.T, p *powercut.Platter) iter.Seq[string] {
	return func(yield func(string) bool) {
		for luck := range powercut.Lucks + 1 {
			to := filepath.Join(scratch(t), "cut")
			must(t, p.Cut(to, min(luck, powercut.AnythingLasts)))
			if !yield(to) {
				return
			}
		}
	}
}
