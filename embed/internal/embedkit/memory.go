package embedkit

import (
	"path/filepath"
	"sync"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/internal/inside"
	"github.com/vivarium-go/vivarium/internal/files/memory"
)

// InMemory lets members have their directories in memory, as they have in a bubble. It is for tests
// that need real time, but no real disk.
func InMemory(o embedtest.Options) embedtest.Options {
	var mu sync.Mutex
	disks := make(map[string]*memory.System) // by the member's directory
	change := o.Config
	o.Dir = string(filepath.Separator)
	o.Config = func(c *embed.Config) {
		if change != nil {
			change(c)
		}
		seams := inside.Seams{}
		if c.Inside != nil {
			seams = *c.Inside
		}
		mu.Lock()
		defer mu.Unlock()
		if disks[c.Dir] == nil {
			disks[c.Dir] = memory.New()
		}
		seams.Files = disks[c.Dir]
		c.Inside = &seams
	}
	return o
}
