//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/client"
	"github.com/vivarium-go/vivarium/embed/gateway"
	"github.com/vivarium-go/vivarium/embed/lock"
)

// vivarium is an ensemble with default settings. The nodes of members that run elsewhere are nil.
type vivarium struct {
	selfContained
	here  []int
	seeds []string
	nodes []*embed.Node

	sessions []*embed.Session // of suites of recipes and shards: one on each member
	parents  []string         // of suite shards: a znode on each shard
	written  int              // of suite shards: how many writers have a znode
}

// startNode is embed.Start. A test replaces it to measure on slow disks.
var startNode = func(_ int, c embed.Config) (*embed.Node, error) { return embed.Start(c) }

func startVivarium(p place) (ensemble, error) {
	v := &vivarium{here: p.Here, seeds: []string{p.Addrs[0][0]}, nodes: make([]*embed.Node, len(p.Addrs))}
	err := inParallel(len(p.Here), len(p.Here), func(k int) (err error) {
		i := p.Here[k]
		v.nodes[i], err = startNode(i, vivariumConfig(p, i))
		return err
	})
	if err == nil && p.Door {
		err = v.openDoors(p)
	}
	if err == nil { // otherwise some would wait for members that did not start
		err = inParallel(len(p.Here), len(p.Here), func(k int) error { return v.nodes[p.Here[k]].Ready(context.Background()) })
	}
	if err != nil {
		v.close()
		return nil, err
	}
	return v, nil
}

// openDoors makes the nodes listen for ZooKeeper's clients.
func (v *vivarium) openDoors(p place) error {
	for _, i := range v.here {
		if _, err := gateway.Start(v.nodes[i], gateway.Config{Listen: p.Addrs[i][1], ConnectionsPerAddress: -1}); err != nil {
			return err
		}
	}
	return nil
}

func logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

func vivariumConfig(p place, member int) embed.Config {
	c := embed.Config{Dir: p.dir(member), ID: embed.MemberID(member + 1), Shards: p.Shards,
		Logger: logger()}
	if p.Grow {
		c.ID, c.Join, c.Advertise = 0, []string{p.Addrs[0][0]}, p.Addrs[member][0]
		c.Found = func(context.Context) (bool, error) { return member == 0, nil }
		return c
	}
	if len(p.Addrs) > 1 {
		c.Members = make(map[embed.MemberID]string)
		for i, addrs := range p.Addrs {
			c.Members[embed.MemberID(i+1)] = addrs[0]
		}
	}
	return c
}

// status is what the first member of this process knows of each shard.
func (v *vivarium) status() []embed.ShardStatus { return v.nodes[v.here[0]].Status().Shards }

func (v *vivarium) leader() (int, error) {
	id := v.status()[0].Leader
	if id == 0 {
		return 0, errors.New("no member leads")
	}
	for _, i := range v.here { // members that join get their ids in any order
		if v.nodes[i].Status().Member == id {
			return i, nil
		}
	}
	return int(id) - 1, nil
}

func (v *vivarium) entries() (sum uint64, err error) {
	for _, s := range v.status() {
		sum += s.Applied
	}
	return sum, nil
}

// learn lets a member join and leave.
func (v *vivarium) learn(dir string) (took time.Duration, err error) {
	p, err := newPlace(dir, 1)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	n, err := embed.Start(embed.Config{Dir: p.dir(0), Join: v.seeds, Advertise: p.Addrs[0][0], Logger: logger()})
	if err != nil {
		return 0, err
	}
	ctx := context.Background()
	err = n.Ready(ctx)
	took = time.Since(began)
	return took, errors.Join(err, n.Leave(ctx))
}

func (v *vivarium) open(member int) (session, error) {
	s, err := v.nodes[member].NewSession(context.Background(), embed.SessionOptions{})
	return vivariumSession{s}, err
}

func dialVivarium(addrs ...string) (session, error) {
	c, err := client.New(client.Config{Servers: addrs, SessionTimeout: dialTimeout})
	if err != nil {
		return nil, err
	}
	s, err := c.NewSession(context.Background(), embed.SessionOptions{})
	return vivariumSession{s}, err
}

func (v *vivarium) close() {
	_ = inParallel(len(v.nodes), len(v.nodes), func(i int) error {
		if v.nodes[i] != nil {
			// whatever the error is: the directory is removed, or opened again
			_ = v.nodes[i].Close()
		}
		return nil
	})
}

type vivariumSession struct{ s *embed.Session }

func (v vivariumSession) close() error { return v.s.Close() }

func (v vivariumSession) make(path string, data []byte) error {
	_, err := v.s.Create(context.Background(), path, data, embed.Persistent)
	return err
}

func (v vivariumSession) set(path string) (op, error) {
	ctx, data := context.Background(), make([]byte, payload)
	return func() error {
		_, err := v.s.Set(ctx, path, data, embed.AnyVersion)
		return err
	}, v.make(path, data)
}

func (v vivariumSession) get(path string) (op, error) {
	ctx := context.Background()
	return func() error {
		data, _, err := v.s.Get(ctx, path)
		return check(data, err)
	}, nil
}

func (v vivariumSession) syncGet(path string) (op, error) {
	ctx := context.Background()
	return func() error {
		if _, err := v.s.Sync(ctx, path); err != nil {
			return err
		}
		data, _, err := v.s.Get(ctx, path)
		return check(data, err)
	}, nil
}

func (v vivariumSession) lock(kind lockKind, path string) (acquire, error) {
	var lockIt func(context.Context) (*lock.Hold, error)
	switch m, rw := lock.NewMutex(v.s, path), lock.NewRWMutex(v.s, path); kind.what {
	case aMutex:
		lockIt = m.With(lock.Options{Keep: kind.keep}).Lock
	case aRead:
		lockIt = rw.RLock
	case aWrite:
		lockIt = rw.Lock
	case aPermit:
		sem := lock.NewSemaphore(v.s, path, kind.n)
		lockIt = func(ctx context.Context) (*lock.Hold, error) { return sem.Acquire(ctx, 1) }
	case aMulti:
		paths := make([]string, kind.n)
		for i := range paths {
			paths[i] = fmt.Sprintf("%s-%d", path, i)
		}
		lockIt = lock.NewMulti(v.s, paths...).Lock
	}
	return func(ctx context.Context) (hold, error) { return lockIt(ctx) }, nil
}

// queued counts the contenders. Of a semaphore it counts those that wait.
func (v vivariumSession) queued(kind lockKind, path string) (int, error) {
	if kind.what == aPermit {
		path += "/locks"
	}
	stat, _, err := v.s.Exists(context.Background(), path)
	return int(stat.NumChildren), err
}

func (v vivariumSession) create(parent string) (op, error) {
	ctx, path := context.Background(), parent+"/n"
	return func() error {
		_, err := v.s.Create(ctx, path, nil, embed.EphemeralSequential)
		return err
	}, nil
}

func (v vivariumSession) watch(path string) (watch, error) {
	w, err := v.s.Watch(context.Background(), path, embed.WatchPersistent)
	if err != nil {
		return watch{}, err
	}
	// as a listener does: the first caller, here or when told is called, pays for the channel
	events := w.Events()
	return watch{told: func() error {
		if _, ok := <-events; !ok {
			return fmt.Errorf("a watch ended: %w", w.Err())
		}
		return nil
	}}, nil
}

func (v vivariumSession) arm(path string, n int) (held any, err error) {
	watches := make([]*embed.Watch, n)
	for i := range watches {
		if watches[i], err = v.s.Watch(context.Background(), path, embed.WatchPersistent); err != nil {
			return nil, err
		}
	}
	return watches, nil
}

// check returns an error unless a read returned the payload.
func check(data []byte, err error) error {
	if err == nil && len(data) != payload {
		err = fmt.Errorf("read %d bytes, want %d", len(data), payload)
	}
	return err
}
