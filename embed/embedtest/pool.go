package embedtest

import (
	"sync"
	_ "unsafe" // for go:linkname
)

// writeTasks is a pool of Pebble's. Each task in it has a channel, and the runtime panics if a
// channel that was made in one bubble is used outside it. A channel that was made outside all
// bubbles works everywhere, and Pebble never waits for it long. So tasks are made outside.
//
//go:linkname writeTasks github.com/cockroachdb/pebble/sstable.writeTaskPool
var writeTasks sync.Pool

func init() {
	newTask := writeTasks.New
	if newTask == nil {
		return // a Pebble without this pool
	}
	made := make(chan any)
	writeTasks.New = func() any { return <-made }
	go makeTasks(newTask, made)
}

// makeTasks makes tasks as long as the process lives.
func makeTasks(newTask func() any, made chan<- any) {
	for {
		made <- newTask()
	}
}
