package campaign

import (
	"context"
	"fmt"
	"time"

	"github.com/vivarium-go/vivarium/embed"
)

const (
	// epochLen is how long the registers of an epoch are used. It is short, so that few writes of
	// unknown outcome meet in one register. Those make it hard to decide the register's history.
	epochLen = 15 * time.Second
	// registersMin is the least number of registers in an epoch, and registersOfArea in each area.
	// Every second register is never deleted.
	registersMin    = 6
	registersOfArea = 2
)

func register(area string, epoch int64, i int) string {
	return fmt.Sprintf("%s%s/%d-%d", area, registersPath, epoch, i)
}

// register returns one of the registers in use, and whether it may be deleted.
func (c *client) register() (path string, mortal bool) {
	areas := c.w.areas
	i := c.rng.IntN(max(registersOfArea, registersMin/len(areas)))
	return register(areas[c.rng.IntN(len(areas))], c.w.epoch.Load(), i), i%2 == 0
}

// versionsMax is the most registers that two epochs can have, with the most shards.
const versionsMax = 2 * registersOfArea * embed.MaxShards

// A registerClient reads and writes registers. For conditional writes it remembers the version of
// each register as it last saw it.
type registerClient struct {
	versions map[string]int32
}

func (k *registerClient) step(_ context.Context, c *client) {
	path, mortal := c.register()
	if k.versions == nil || len(k.versions) > versionsMax {
		k.versions = make(map[string]int32)
	}
	version, seen := k.versions[path]
	q := Request{Path: path, Version: embed.AnyVersion, Within: c.within()}
	switch n := c.rng.IntN(100); {
	case !seen || n < 5:
		q.Call, q.Data = callCreate, c.next()
	case n < 30:
		q.Call, q.Data = callSet, c.next()
	case n < 50:
		q.Call, q.Data, q.Version = callSet, c.next(), version
	case n < 54 && mortal:
		q.Call = callDelete
	case n < 57 && mortal:
		q.Call, q.Version = callDelete, version
	case n < 75:
		q.Call = callSyncGet
	default:
		q.Call = callGet
	}
	r := c.do(q)
	switch {
	case r.Outcome == applied && q.Call != callDelete:
		k.versions[path] = r.Stat.Version
	case r.Outcome == nodeExists && !seen:
		k.versions[path] = 0
	case r.Outcome == noNode:
		delete(k.versions, path)
	}
}
