package embed_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/lock"
)

// A stall is a slow scheme of a service. While it is on, a machine that has to judge an ACL of the
// scheme stands still.
type stall struct {
	ctx context.Context // the test's: nobody waits longer

	mu      sync.Mutex
	off     chan struct{} // closed to let the machines go on; nil while the stall is off
	waiting int
}

func (*stall) Identify([]byte) (string, error) { return "anybody", nil }
func (*stall) Valid(string) bool               { return true }
func (*stall) Expands() bool                   { return false }

func (s *stall) Matches(string, string) bool {
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

func (s *stall) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.off = make(chan struct{})
}

func (s *stall) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.off != nil {
		close(s.off)
		s.off = nil
	}
}

func (s *stall) stands() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.waiting
}

// stalling starts an ensemble with four shards. begin makes one shard stand still on every member.
// It returns writes to that shard, which must be applied after the stall.
func stalling(t *testing.T, shard int) (ens *embedtest.Ensemble, s *stall, begin func() []*embed.Pending) {
	ctx := bounded(t)
	s = &stall{ctx: ctx}
	ens = embedtest.New(t, 3, embedtest.Options{Config: func(c *embed.Config) {
		c.Shards, c.Schemes = len(onShard), map[string]embed.Scheme{"stall": s}
	}})
	t.Cleanup(s.end) // runs before the ensemble is closed
	writer := ens.Session(1, embed.SessionOptions{Timeout: time.Minute, Auth: []embed.Auth{{Scheme: "stall"}}})
	for _, path := range onShard {
		_, err := writer.Create(ctx, path, nil, embed.Persistent)
		must(t, err)
	}
	slow := onShard[shard-1] + "/slow"
	acl := append(embed.ReadACL(), embed.ACL{Perms: embed.PermWrite, Scheme: "stall", ID: "anybody"})
	_, _, err := writer.CreateWith(ctx, slow, []byte("before"), embed.CreateOptions{ACL: acl})
	must(t, err)
	return ens, s, func() (sent []*embed.Pending) {
		for _, id := range ens.Members() {
			_, err := ens.Session(id, embed.SessionOptions{}).Sync(ctx, "/")
			must(t, err)
		}
		s.begin()
		for version := range int32(3) {
			sent = append(sent, writer.Submit(ctx, embed.OpSet(slow, []byte("after"), version)))
		}
		ens.Until("the machines to stand still", func() bool { return s.stands() == len(ens.Members()) })
		return sent
	}
}

// wantApplied checks that the writes that waited for the end of the stall were applied.
func wantApplied(t *testing.T, sent []*embed.Pending) {
	t.Helper()
	for _, p := range sent {
		_, err := p.Result()
		must(t, err)
	}
}

// works writes to a znode on a shard that works, is told of it, reads it and locks it.
func works(t *testing.T, ctx context.Context, s *embed.Session, path string) {
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

// The machine of a shard stands still on every member. Only callers that write there wait. Others
// write, read, watch and lock. Sessions are opened, stay alive and end, even sessions of a dead
// member that have something on that shard.
func TestShards_OneStandsStill(t *testing.T) {
	t.Parallel()
	const shard = 3
	ens, still, begin := stalling(t, shard)
	ctx := bounded(t)
	slow := onShard[shard-1]
	others := []string{onShard[0], onShard[1], onShard[3]}
	short := embed.SessionOptions{Timeout: 5 * time.Second}
	known, gone := ens.Session(2, short), ens.Session(3, short)
	for _, path := range onShard {
		_, err := known.Set(ctx, path, nil, embed.AnyVersion)
		must(t, err)
		_, err = gone.Create(ctx, path+"/gone", nil, embed.Ephemeral)
		must(t, err)
	}
	sent := begin()
	ens.Isolate(3)
	fresh := ens.Session(1, short)
	first := make(chan error, 1)
	go func() {
		_, err := fresh.Set(ctx, slow, nil, embed.AnyVersion)
		first <- err
	}()
	ended := func() bool {
		for _, path := range others {
			if _, there, err := known.Exists(ctx, path+"/gone"); there || err != nil {
				return false
			}
		}
		return true
	}
	ens.Until("the sessions of the member that is gone to end", func() bool {
		passing := ens.Session(2, short)
		for _, path := range others {
			for _, s := range []*embed.Session{known, fresh, passing} {
				works(t, ctx, s, path)
			}
		}
		must(t, passing.Close())
		return ended()
	})

	if data, _, err := known.Get(ctx, slow+"/slow"); err != nil || string(data) != "before" {
		t.Errorf("there: %q, %v", data, err)
	}
	if names, _, err := known.Children(ctx, "/"); err != nil || len(names) != len(onShard)+1 {
		t.Errorf("the root: %v, %v", names, err)
	}
	if n := len(ens.Node(1).Status().Shards); n != len(onShard) {
		t.Errorf("status of %d shards", n)
	}
	if paths, err := fresh.Ephemerals(ctx, "/"); err != nil || len(paths) != 0 {
		t.Errorf("ephemerals: %v, %v", paths, err)
	}
	for _, s := range []*embed.Session{known, fresh} {
		if now, _ := s.State(); now != embed.Connected {
			t.Errorf("session %d is %v", s.ID(), now)
		}
	}
	for what, wait := range map[string]func(context.Context) error{
		"Sync":             func(ctx context.Context) error { _, err := known.Sync(ctx, slow); return err },
		"Sync of the root": func(ctx context.Context) error { _, err := known.Sync(ctx, "/"); return err },
		"Ready":            func(ctx context.Context) error { return ens.Node(1).Ready(ctx) },
	} {
		impatient, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
		if err := wait(impatient); err == nil {
			t.Errorf("%s did not wait for the shard that stands still", what)
		}
		cancel()
	}
	closing := ens.Session(1, short)
	refused := make(chan error, 1)
	go func() {
		_, err := closing.Set(ctx, slow, nil, embed.AnyVersion)
		refused <- err
	}()
	must(t, closing.Close())
	if err := <-refused; !errors.Is(err, embed.ErrSessionClosed) {
		t.Errorf("a first write whose session is closed: %v", err)
	}

	for _, p := range sent {
		select {
		case <-p.Done():
			t.Error("a write got past the machine that stands still")
		default:
		}
	}
	still.end()
	wantApplied(t, sent)
	must(t, <-first)
	ens.Until("the session to end there too", func() bool {
		_, there, err := known.Exists(ctx, slow+"/gone")
		return err == nil && !there
	})
}

// If the first shard stands still, which holds the sessions, no session can be opened or proved
// alive. Existing sessions work on the other shards.
func TestShards_TheFirstStandsStill(t *testing.T) {
	t.Parallel()
	ens, still, begin := stalling(t, 1)
	ctx := bounded(t)
	known := ens.Session(2, embed.SessionOptions{Timeout: time.Minute})
	brief := ens.Session(2, embed.SessionOptions{Timeout: 3 * time.Second})
	for _, path := range onShard {
		_, err := known.Set(ctx, path, nil, embed.AnyVersion)
		must(t, err)
	}
	sent := begin()
	// Its member's writes elsewhere do not help.
	for now, _ := brief.State(); now == embed.Connected; now, _ = brief.State() {
		for _, path := range onShard[1:] {
			works(t, ctx, known, path)
		}
	}
	ens.Isolate(3)
	for _, path := range onShard[1:] {
		works(t, ctx, known, path)
	}
	ens.HealAll() // they must connect again, although the first shard cannot tell who they are
	ens.Until("the member that was cut off to follow on the other shards", func() bool {
		there, here := ens.Node(2).Status().Shards, ens.Node(3).Status().Shards
		for i := range there[1:] {
			if here[i+1].Zxid < there[i+1].Zxid {
				return false
			}
		}
		return true
	})
	impatient, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	if _, err := ens.Node(2).NewSession(impatient, embed.SessionOptions{}); err == nil {
		t.Error("a session was opened")
	}
	still.end()
	wantApplied(t, sent)
	must(t, ens.Session(2, embed.SessionOptions{}).Close())
}

// Ephemerals waits for a machine that is busy with an entry, but no longer than it may.
func TestShards_EphemeralsOfOneThatStandsStill(t *testing.T) {
	ens, still, begin := stalling(t, 3)
	ctx := bounded(t)
	known := ens.Session(2, embed.SessionOptions{Timeout: time.Minute})
	_, err := known.Set(ctx, onShard[2], nil, embed.AnyVersion)
	must(t, err)
	sent := begin()
	told := make(chan struct{})
	go func() {
		defer close(told)
		for unavailable := false; !unavailable; {
			impatient, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
			_, err := known.Ephemerals(impatient, "/")
			cancel()
			// The ctx's error alone means that the ctx had ended before the call looked at it.
			if unavailable = errors.Is(err, embed.ErrUnavailable); !unavailable && !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("of a shard that stands still: %v", err)
				break
			}
		}
		if m, err := known.Member(ctx, known.ID()); m != 2 || err != nil {
			t.Errorf("the member is %d, %v", m, err)
		}
	}()
	select {
	case <-told:
	case <-time.After(30 * time.Second):
		t.Error("Ephemerals waits longer than its ctx")
	}
	still.end()
	wantApplied(t, sent)
	<-told
}
