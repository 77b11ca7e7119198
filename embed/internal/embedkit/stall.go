package embedkit

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/lock"
)

// A Stall is a slow scheme of a service. While it is on, a machine that has to judge an ACL of the
// scheme stands still.
//
// A machine stands still with its mutex locked, so tests with a Stall need real time: in a bubble,
// a goroutine that waits for the mutex would stop the clock.
type Stall struct {
	ctx context.Context // the test's: nobody waits longer

	mu      sync.Mutex
	off     chan struct{} // Closed to let the machines go on; nil while the stall is off
	waiting int
}

// NewStall returns a stall that is off. When the test's ctx ends, nothing waits for it any longer.
func NewStall(ctx context.Context) *Stall { return &Stall{ctx: ctx} }

// Identify implements embed.Scheme.
func (*Stall) Identify([]byte) (string, error) { return "anybody", nil }

// Valid implements embed.Scheme.
func (*Stall) Valid(string) bool { return true }

// Expands implements embed.Scheme.
func (*Stall) Expands() bool { return false }

// Matches implements embed.Scheme. It waits while the stall is on.
func (s *Stall) Matches(string, string) bool {
	s.mu.Lock()
	off := s.off
	if off != nil {
		s.waiting++
	}
	s.mu.Unlock()
	if off != nil {
		select {
		case <-off:
		case <-s.ctx.Done():
		}
	}
	return true
}

// Begin lets machines stand still from now on.
func (s *Stall) Begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.off = make(chan struct{})
}

// End lets them go on.
func (s *Stall) End() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.off != nil {
		close(s.off)
		s.off = nil
	}
}

// Stands returns how often a machine has stood still.
func (s *Stall) Stands() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.waiting
}

// Stalling starts an ensemble with four shards. begin makes one shard stand still on every member.
// It returns writes to that shard, which must be applied after the stall.
func Stalling(t *testing.T, shard int) (ens *embedtest.Ensemble, s *Stall, begin func() []*embed.Pending) {
	ctx := bounded(t)
	s = NewStall(ctx)
	ens = embedtest.New(t, 3, InMemory(embedtest.Options{Config: func(c *embed.Config) {
		Patient(c)
		c.Shards, c.Schemes = len(OnShard), map[string]embed.Scheme{"stall": s}
	}}))
	t.Cleanup(s.End) // runs before the ensemble is closed
	writer := ens.Session(1, embed.SessionOptions{Timeout: time.Minute, Auth: []embed.Auth{{Scheme: "stall"}}})
	for _, path := range OnShard {
		_, err := writer.Create(ctx, path, nil, embed.Persistent)
		must(t, err)
	}
	slow := OnShard[shard-1] + "/slow"
	acl := append(embed.ReadACL(), embed.ACL{Perms: embed.PermWrite, Scheme: "stall", ID: "anybody"})
	_, _, err := writer.CreateWith(ctx, slow, []byte("before"), embed.CreateOptions{ACL: acl})
	must(t, err)
	return ens, s, func() (sent []*embed.Pending) {
		for _, id := range ens.Members() {
			_, err := ens.Session(id, embed.SessionOptions{}).Sync(ctx, "/")
			must(t, err)
		}
		s.Begin()
		for version := range int32(3) {
			sent = append(sent, writer.Submit(ctx, embed.OpSet(slow, []byte("after"), version)))
		}
		ens.Until("the machines to stand still", func() bool { return s.Stands() == len(ens.Members()) })
		return sent
	}
}

// WantApplied checks that the writes that waited for the end of the stall were applied.
func WantApplied(t *testing.T, sent []*embed.Pending) {
	t.Helper()
	for _, p := range sent {
		_, err := p.Result()
		must(t, err)
	}
}

// Works writes to a znode on a shard that works, is told of it, reads it and locks it.
func Works(t *testing.T, ctx context.Context, s *embed.Session, path string) {
	t.Helper()
	told, err := s.Watch(ctx, path, embed.WatchPersistent)
	must(t, err)
	defer told.Close()
	stat, err := s.Set(ctx, path, []byte("x"), embed.AnyVersion)
	must(t, err)
	for e := range told.Events() { // others wrote before, too
		if e.Zxid >= stat.Mzxid {
			break
		}
	}
	must(t, told.Err())
	_, err = s.Sync(ctx, path)
	must(t, err)
	if _, now, err := s.Get(ctx, path); err != nil || now.Version < stat.Version {
		t.Errorf("version %d after version %d was written: %v", now.Version, stat.Version, err)
	}
	hold, err := lock.NewMutex(s, fmt.Sprintf("%s/lock-%d", path, s.ID())).Lock(ctx)
	must(t, err)
	must(t, hold.Release())
}
