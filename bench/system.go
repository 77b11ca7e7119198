//go:build linux

package main

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/vivarium-go/vivarium/bench/internal/bare"
	"github.com/vivarium-go/vivarium/internal/testkit/child"
)

// members is the size of an ensemble.
const members = 3

// payload is how many bytes a write carries.
const payload = 64

// A place is where the members of an ensemble live. Members count from 0.
type place struct {
	Dir string
	// by member: host:port for its peers, its clients and its elections, as far as the system needs
	// them
	Addrs [][]string
	Here  []int // the members that run in this process
	Door  bool  // they listen for ZooKeeper's clients, if they can and do not anyway

	Shards int  // zero means one
	Grow   bool // the first member founds the ensemble, and the others join it
}

// newPlace makes a directory and finds addresses for size members, all of them in this process.
func newPlace(dir string, size int) (place, error) {
	p := place{Dir: dir}
	for i := range size {
		addrs, err := child.FreeAddrs(3)
		if err != nil {
			return p, err
		}
		p.Addrs, p.Here = append(p.Addrs, addrs), append(p.Here, i)
	}
	return p, os.MkdirAll(dir, 0o755)
}

// dir returns a member's directory.
func (p place) dir(member int) string { return filepath.Join(p.Dir, strconv.Itoa(member)) }

// dialTimeout is the timeout of sessions over connections.
const dialTimeout = 10 * time.Second

// A system is one of the things that bench measures.
type system struct {
	// start starts the members of this process, empty or with the contents of their directories. It
	// returns when they serve.
	start func(p place) (ensemble, error)

	sessions    int // the most sessions that the callers on a member share
	sessionsMax int // how many idle sessions a small machine bears; 0 if there cannot be many
	watchesMax  int // the same for watches
	// dial opens a session of the system's own client, over a connection of its own that lasts as
	// long as this process. The members at addrs serve it.
	dial func(addrs ...string) (session, error)
	// missing says what the system lacks on this machine; nil means that it lacks nothing.
	missing func() error
	// member returns a command that starts a member of suite partition.
	member func(w *worker) (memberCommand, error)
}

// systems are all systems that can be measured. The others are compared with the first of order.
var (
	systems = map[string]system{
		"vivarium":   {start: startVivarium, sessions: 1, sessionsMax: 100_000, watchesMax: 1_000_000, dial: dialVivarium, member: vivariumMember},
		"etcd":       {start: startEtcd, sessions: 1, sessionsMax: 10_000, watchesMax: 100_000, dial: dialEtcd},
		"zookeeper":  {start: startZooKeeper, sessions: 16, dial: dialZooKeeper, missing: noZooKeeper},
		"dragonboat": {start: startBare(bare.StartTan), sessions: 1},
		"pebble":     {start: startBare(bare.StartPebble), sessions: 1},
		"kazoo":      {start: script(kazoo).start, sessions: 1, missing: script(kazoo).missing, member: kazooMember},
		"curator":    {start: script(curator).start, sessions: 1, missing: script(curator).missing},
	}
	order = []string{"vivarium", "etcd", "zookeeper", "dragonboat", "pebble", "kazoo", "curator"}
)

// errMissing is the error of an operation that a system does not have.
var errMissing = errors.New("the system does not have it")

// An ensemble is the members of one system that run in this process.
type ensemble interface {
	// leader returns the member that leads now.
	leader() (int, error)
	// open opens a session on a member of this process.
	open(member int) (session, error)
	// entries returns how many entries the log has.
	entries() (uint64, error)
	// pids returns the processes in which the members run.
	pids() []int
	// close stops the members in an orderly way.
	close()
}

// A session is a client of one member. A method that returns an op prepares everything the op
// needs, so that only the op is measured.
type session interface {
	close() error
	// make creates a znode that must not exist.
	make(path string, data []byte) error
	// set creates a znode; the op sets payload bytes.
	set(path string) (op, error)
	// get returns an op that reads a znode on the session's member.
	get(path string) (op, error)
	// syncGet returns an op that reads what was last acknowledged anywhere.
	syncGet(path string) (op, error)
	// lock returns a function that acquires a lock of a kind.
	lock(kind lockKind, path string) (acquire, error)
	// create returns an op that creates a sequential ephemeral below a znode.
	create(parent string) (op, error)
	// watch arms a watch of a znode that lasts as long as the session.
	watch(path string) (watch, error)
	// arm arms n such watches and returns the value that keeps them alive.
	arm(path string, n int) (held any, err error)
}

// An op is one operation from its call to its acknowledgement.
type op = func() error

// A watch is armed. told waits for its event. again, if it is not nil, arms it anew.
type watch struct{ told, again op }

// selfContained is embedded in ensembles whose members are part of this process.
type selfContained struct{}

func (selfContained) pids() []int { return []int{os.Getpid()} }

// writesOnly is a session that can do nothing. Systems that can do a little embed it.
type writesOnly struct{}

func (writesOnly) close() error                           { return nil }
func (writesOnly) make(string, []byte) error              { return errMissing }
func (writesOnly) get(string) (op, error)                 { return nil, errMissing }
func (writesOnly) syncGet(string) (op, error)             { return nil, errMissing }
func (writesOnly) lock(lockKind, string) (acquire, error) { return nil, errMissing }
func (writesOnly) create(string) (op, error)              { return nil, errMissing }
func (writesOnly) watch(string) (watch, error)            { return watch{}, errMissing }
func (writesOnly) arm(string, int) (any, error)           { return nil, errMissing }

// inParallel calls do for each number below n, with width calls at a time. The first error ends it.
func inParallel(n, width int, do func(i int) error) error {
	var g errgroup.Group
	var failed atomic.Bool
	for k := range width {
		g.Go(func() error {
			for i := k; i < n && !failed.Load(); i += width {
				if err := do(i); err != nil {
					failed.Store(true)
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}
