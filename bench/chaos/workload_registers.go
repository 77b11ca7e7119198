//go:build unix

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/vivarium-go/vivarium/embed"
)

const (
	// epochLen is how long the registers of an epoch are used: short enough that few writes of unknown outcome meet in one of
	// them, which is what makes deciding its history hard.
	epochLen = 15 * time.Second
	// registers is how many there are in an epoch. Every other one is never deleted.
	registers = 6
)

func register(epoch int64, i int) string {
	return fmt.Sprintf("%s/%d-%d", registersPath, epoch, i)
}

// register returns one of the registers in use and whether it may be deleted.
func (c *client) register() (path string, mortal bool) {
	i := c.rng.IntN(registers)
	return register(c.w.epoch.Load(), i), i%2 == 0
}

// A registerClient reads and writes registers. It knows the version of each as it last saw it, for writes that depend on it.
type registerClient struct {
	versions map[string]int32
}

func (k *registerClient) step(_ context.Context, c *client) {
	path, mortal := c.register()
	if k.versions == nil || len(k.versions) > 4*registers {
		k.versions = make(map[string]int32)
	}
	version, seen := k.versions[path]
	q := request{Path: path, Version: embed.AnyVersion, Within: c.within()}
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
