//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	experimental "go.etcd.io/etcd/client/v3/experimental/recipes"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"

	"github.com/vivarium-go/vivarium/bench/internal/measure"
)

// etcd is an ensemble of etcd with default settings, and its in-process clients. Members that run
// elsewhere are nil.
type etcd struct {
	selfContained
	here    []int
	cluster []string // name=url of each member
	servers [members]*embed.Etcd
	clients [members]*clientv3.Client
}

func startEtcd(p place) (ensemble, error) {
	e := &etcd{here: p.Here, cluster: etcdCluster(p)}
	err := inParallel(len(p.Here), len(p.Here), func(k int) (err error) {
		i := p.Here[k]
		if e.servers[i], err = embed.StartEtcd(etcdConfig(p, i)); err != nil {
			return err
		}
		select {
		case <-e.servers[i].Server.ReadyNotify():
			e.clients[i] = v3client.New(e.servers[i].Server)
			return nil
		case err := <-e.servers[i].Err():
			return err
		}
	})
	if err != nil {
		e.close()
		return nil, err
	}
	return e, nil
}

func etcdConfig(p place, member int) *embed.Config {
	c := embed.NewConfig()
	c.Name, c.Dir, c.LogLevel = etcdName(member), p.dir(member), "error"
	peers, clients := urls(p.Addrs[member][0]), urls(p.Addrs[member][1])
	c.ListenPeerUrls, c.AdvertisePeerUrls = peers, peers
	c.ListenClientUrls, c.AdvertiseClientUrls = clients, clients
	c.InitialCluster = strings.Join(etcdCluster(p), ",")
	return c
}

func etcdCluster(p place) (all []string) {
	for i, addrs := range p.Addrs {
		all = append(all, etcdName(i)+"=http://"+addrs[0])
	}
	return all
}

// learn adds a learner and waits until it has applied what was applied on the first member when it
// was added. etcd itself says no sooner that a learner serves.
func (e *etcd) learn(dir string) (took time.Duration, err error) {
	p, err := newPlace(dir, 1)
	if err != nil {
		return 0, err
	}
	c := etcdConfig(p, 0)
	c.Name, c.ClusterState = filepath.Base(dir), "existing"
	c.InitialCluster = strings.Join(append(slices.Clone(e.cluster), c.Name+"=http://"+p.Addrs[0][0]), ",")
	ctx := context.Background()
	var began time.Time
	var added *clientv3.MemberAddResponse
	err = measure.Until("the cluster to be healthy", func() bool { // for five seconds after a start it is not
		began = time.Now()
		added, err = e.clients[0].MemberAddAsLearner(ctx, []string{"http://" + p.Addrs[0][0]})
		return err == nil
	})
	if err != nil {
		return 0, err
	}
	index := e.servers[0].Server.AppliedIndex()
	s, err := embed.StartEtcd(c)
	if err != nil {
		return 0, err
	}
	for late := began.Add(patience); s.Server.AppliedIndex() < index; time.Sleep(time.Millisecond) {
		if time.Now().After(late) {
			return 0, fmt.Errorf("the learner has applied %d of %d entries after %v", s.Server.AppliedIndex(), index, patience)
		}
	}
	took = time.Since(began)
	_, err = e.clients[0].MemberRemove(ctx, added.Member.ID)
	s.Close()
	return took, err
}

func etcdName(member int) string { return "member" + strconv.Itoa(member) }

func urls(addr string) []url.URL { return []url.URL{{Scheme: "http", Host: addr}} }

func (e *etcd) leader() (int, error) {
	s := e.servers[e.here[0]].Server
	if m := s.Cluster().Member(s.Leader()); m != nil {
		return strconv.Atoi(strings.TrimPrefix(m.Name, "member"))
	}
	return 0, errors.New("no member leads")
}

func (e *etcd) entries() (uint64, error) { return e.servers[e.here[0]].Server.AppliedIndex(), nil }

func (e *etcd) open(member int) (session, error) {
	s, err := concurrency.NewSession(e.clients[member])
	watcher := func() clientv3.Watcher { return v3client.New(e.servers[member].Server).Watcher }
	return &etcdSession{s: s, c: e.clients[member], newWatcher: watcher}, err
}

func dialEtcd(addrs ...string) (session, error) {
	c, err := clientv3.New(clientv3.Config{Endpoints: addrs})
	if err != nil {
		return nil, err
	}
	s, err := concurrency.NewSession(c, concurrency.WithTTL(int(dialTimeout.Seconds())))
	return &etcdSession{s: s, c: c, newWatcher: func() clientv3.Watcher { return clientv3.NewWatcher(c) }}, err
}

func (e *etcd) close() {
	_ = inParallel(members, members, func(i int) error {
		if e.servers[i] != nil {
			e.servers[i].Close()
		}
		return nil
	})
}

// An etcdSession is a lease that is kept alive.
type etcdSession struct {
	s          *concurrency.Session
	c          *clientv3.Client
	newWatcher func() clientv3.Watcher

	mu sync.Mutex
	// this session's own, once it watches: cancelling many watches of a watcher that goes on blocks
	// it for ever
	watcher clientv3.Watcher
}

func (e *etcdSession) close() error {
	if e.watcher != nil {
		_ = e.watcher.Close() // the error only says that it was closed
	}
	return e.s.Close()
}

func (e *etcdSession) make(path string, data []byte) error {
	_, err := e.c.Put(context.Background(), path, string(data))
	return err
}

func (e *etcdSession) set(path string) (op, error) {
	ctx, data := context.Background(), make([]byte, payload)
	value := string(data)
	return func() error {
		_, err := e.c.Put(ctx, path, value)
		return err
	}, e.make(path, data)
}

func (e *etcdSession) get(path string) (op, error) {
	return e.read(path, clientv3.WithSerializable())
}

func (e *etcdSession) syncGet(path string) (op, error) { return e.read(path) }

func (e *etcdSession) read(path string, options ...clientv3.OpOption) (op, error) {
	ctx := context.Background()
	return func() error {
		r, err := e.c.Get(ctx, path, options...)
		if err == nil && len(r.Kvs) != 1 {
			err = fmt.Errorf("read %d keys, want 1", len(r.Kvs))
		}
		if err != nil {
			return err
		}
		return check(r.Kvs[0].Value, nil)
	}, nil
}

// An etcdHold releases a lock of etcd. etcd's recipes take no context.
type etcdHold func() error

func (h etcdHold) Release() error { return h() }

func (e *etcdSession) lock(kind lockKind, path string) (acquire, error) {
	if kind.keep > 0 {
		return nil, errMissing
	}
	switch kind.what {
	case aMutex:
		m := concurrency.NewMutex(e.s, path)
		release := etcdHold(func() error { return m.Unlock(context.Background()) })
		return func(ctx context.Context) (hold, error) { return release, m.Lock(ctx) }, nil
	case aRead:
		m := experimental.NewRWMutex(e.s, path)
		return func(context.Context) (hold, error) { return etcdHold(m.RUnlock), m.RLock() }, nil
	case aWrite:
		m := experimental.NewRWMutex(e.s, path)
		return func(context.Context) (hold, error) { return etcdHold(m.Unlock), m.Lock() }, nil
	}
	return nil, errMissing
}

// etcdKeys counts the keys that create made.
var etcdKeys atomic.Uint64

// create creates a key that must not exist and that is deleted with the lease. The key's create
// revision is its place in the sequence.
func (e *etcdSession) create(parent string) (op, error) {
	ctx, prefix := context.Background(), fmt.Sprintf("%s/%x-", parent, e.s.Lease())
	return func() error {
		key := prefix + strconv.FormatUint(etcdKeys.Add(1), 10)
		r, err := e.c.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).
			Then(clientv3.OpPut(key, "", clientv3.WithLease(e.s.Lease()))).Commit()
		if err == nil && !r.Succeeded {
			err = fmt.Errorf("%s exists already", key)
		}
		return err
	}, nil
}

func (e *etcdSession) watch(path string) (watch, error) {
	events, err := e.events(path)
	return watch{told: func() error {
		if r, ok := <-events; !ok || len(r.Events) == 0 {
			return fmt.Errorf("a watch ended: %w", r.Err())
		}
		return nil
	}}, err
}

func (e *etcdSession) arm(path string, n int) (held any, err error) {
	watches := make([]clientv3.WatchChan, n)
	return watches, inParallel(n, 64, func(i int) (err error) {
		watches[i], err = e.events(path)
		return err
	})
}

// events arms a watch and waits until it is armed.
func (e *etcdSession) events(path string) (clientv3.WatchChan, error) {
	e.mu.Lock()
	if e.watcher == nil {
		e.watcher = e.newWatcher()
	}
	e.mu.Unlock()
	events := e.watcher.Watch(context.Background(), path, clientv3.WithCreatedNotify())
	if r := <-events; !r.Created {
		return nil, fmt.Errorf("a watch was not armed: %w", r.Err())
	}
	return events, nil
}
