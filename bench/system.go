//go:build linux

package main

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/vivarium-go/vivarium/internal/testkit/child"
)

// members is the size of an ensemble.
const members = 3

// payload is how many bytes a write carries.
const payload = 64

// A place is where the members of an ensemble live. Members count from 0.
type place struct {
	Dir   string
	Addrs [][]string // of each member: host:port for its peers, its clients and its elections, as far as the system needs them
	Here  []int      // the members that run in this process
	Door  bool       // they listen for ZooKeeper's clients, if they can and do not anyway
}

// newPlace makes a directory and finds addresses for so many members, all of them in this process.
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

// dir is a member's directory.
func (p place) dir(member int) string { return filepath.Join(p.Dir, strconv.Itoa(member)) }

// A system is what is measured.
type system struct {
	// start starts the members of this process, empty or with what is in their directories, and returns when they serve.
	start func(p place) (ensemble, error)

	sessions    int    // how many the callers on a member share at most
	sessionsMax int    // how many idle ones a small machine bears, if there can be many
	watchesMax  int    // the same of watches
	only        string // the one suite that makes sense
	door        bool   // it speaks ZooKeeper's protocol
}

// systems are all that can be measured here; the others are compared with the first of order.
var (
	systems = map[string]system{
		"vivarium":   {start: startVivarium, sessions: 1, sessionsMax: 100_000, watchesMax: 1_000_000, door: true},
		"etcd":       {start: startEtcd, sessions: 1, sessionsMax: 10_000, watchesMax: 100_000},
		"zookeeper":  {start: startZooKeeper, sessions: 16, door: true},
		"dragonboat": {start: startDragonboat, sessions: 1, only: "write"},
	}
	order = []string{"vivarium", "etcd", "zookeeper", "dragonboat"}
)

// errMissing is what a system answers that has no such thing.
var errMissing = errors.New("there is no such thing")

// An ensemble is the members of one system that run in this process.
type ensemble interface {
	// leader is the member that leads now.
	leader() (int, error)
	// open opens a session on a member of this process.
	open(member int) (session, error)
	// entries counts what is in the log.
	entries() (uint64, error)
	// pids are the processes in which the members run.
	pids() []int
	// close ends everything, as an orderly program does.
	close()
}

// A session is a client of one member. What returns an op prepares everything the op needs; the op is what is measured.
type session interface {
	close() error
	// make creates a znode that must not be there.
	make(path string, data []byte) error
	// set creates a znode; the op sets payload bytes.
	set(path string) (op, error)
	// get is for the op that reads a znode from where the session is.
	get(path string) (op, error)
	// syncGet is for the op that reads what was last acknowledged anywhere.
	syncGet(path string) (op, error)
	// lock is for the take of a lock of a kind.
	lock(kind lockKind, path string) (take, error)
	// create is for the op that creates a sequential ephemeral below a znode.
	create(parent string) (op, error)
	// watch arms a watch of a znode that lasts as long as the session.
	watch(path string) (watch, error)
	// arm arms n of them and returns what holds them.
	arm(path string, n int) (held any, err error)
}

// An op is one operation from its call to its acknowledgement.
type op = func() error

// A watch is armed. told waits until it has been told of a change; again, if it is not nil, arms it anew.
type watch struct{ told, again op }

// selfContained is what ensembles have in common whose members are part of this process.
type selfContained struct{}

func (selfContained) pids() []int { return []int{os.Getpid()} }

// writesOnly is a session that can do nothing; systems that can do a little embed it.
type writesOnly struct{}

func (writesOnly) close() error                        { return nil }
func (writesOnly) make(string, []byte) error           { return errMissing }
func (writesOnly) get(string) (op, error)              { return nil, errMissing }
func (writesOnly) syncGet(string) (op, error)          { return nil, errMissing }
func (writesOnly) lock(lockKind, string) (take, error) { return nil, errMissing }
func (writesOnly) create(string) (op, error)           { return nil, errMissing }
func (writesOnly) watch(string) (watch, error)         { return watch{}, errMissing }
func (writesOnly) arm(string, int) (any, error)        { return nil, errMissing }

// inParallel does something for each number below n, width of them at a time. The first error ends it.
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
