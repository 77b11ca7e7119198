package storage

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vivarium-go/vivarium/internal/files"
	"github.com/vivarium-go/vivarium/internal/files/memory"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/storage/disk"
)

// C13.4: A power cut leaves less than a crash does. Each name and each content that was not synced
// may be there or not, independent of all others.
func TestPowerCutAtAnyChangeLeavesAWholeImage(t *testing.T) {
	for name, l := range lives(t) {
		t.Run(name, func(t *testing.T) {
			for at, more := 1+testkit.Rand(t).IntN(stride(4)), true; more; at += stride(4) {
				more = t.Run(fmt.Sprint(at), func(t *testing.T) {
					sys := inMemory(t, l.before)
					c := &cutter{sys: sys, at: at}
					promised := l.run(t, nodeOn(t, sys, home), c.cut)
					for left := range cuts(t, sys) {
						l.survives(t, nodeOn(t, left, home), promised)
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
	for at, more := 1+testkit.Rand(t).IntN(stride(4)), true; more; at += stride(4) {
		more = t.Run(fmt.Sprint(at), func(t *testing.T) {
			sys := inMemory(t, l.before)
			killed := l.run(t, nodeOn(t, sys, home), func(op disk.Op, name string) error {
				if op == disk.OpSyncDir && strings.Contains(text(t, sys, filepath.Join(name, pointerName)), imageName(2)) {
					return errFault
				}
				return nil
			})
			c := &cutter{sys: sys, at: at}
			promised := l.run(t, nodeOn(t, sys, home), c.cut)
			for left := range cuts(t, sys) {
				l.survives(t, nodeOn(t, left, home), max(killed, promised))
			}
			more = c.at <= 0
		}) && more
	}
}

// home is the directory of a node in memory.
const home = "/node"

// inMemory is restore to a file system in memory, where everything is durable.
func inMemory(t *testing.T, all map[string]string) *memory.System {
	t.Helper()
	sys := memory.New()
	n := nodeOn(t, sys, home)
	paths := slices.Sorted(maps.Keys(all))
	for _, rel := range paths {
		path := filepath.Join(n.root, rel)
		if rel[len(rel)-1] == '/' {
			must(t, n.disk.MkdirAll(path))
			continue
		}
		f, err := n.disk.Create(path)
		must(t, err)
		_, err = f.Write([]byte(all[rel]))
		must(t, errors.Join(err, f.Sync(), f.Close()))
	}
	for _, rel := range paths {
		if rel[len(rel)-1] == '/' {
			must(t, syncDir(n.disk, filepath.Join(n.root, rel)))
		}
	}
	return sys
}

// text returns the contents of a file, or nothing if there is none.
func text(t *testing.T, sys files.System, name string) string {
	f, err := sys.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		return ""
	}
	all, err := io.ReadAll(io.NewSectionReader(f, 0, math.MaxInt64))
	must(t, errors.Join(err, f.Close()))
	return string(all)
}

// cuts returns what a power cut may leave, one after the other. In two of them, chance decides.
func cuts(t *testing.T, sys *memory.System) iter.Seq[*memory.System] {
	return func(yield func(*memory.System) bool) {
		rng := testkit.Rand(t)
		for luck := range memory.Lucks + 1 {
			if !yield(sys.PowerCut(min(luck, memory.AnythingLasts), rng)) {
				return
			}
		}
	}
}
