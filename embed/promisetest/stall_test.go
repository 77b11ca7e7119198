package promisetest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/internal/embedkit"
)

// briefly is the timeout of a session that must expire. The test does not depend on when.
const briefly = 800 * time.Millisecond

func connected(s *embed.Session) bool {
	now, _ := s.State()
	return now == embed.Connected
}

// The machine of a shard stands still on every member. Only callers that write there wait. Others
// write, read, watch and lock. Sessions are opened, stay alive and end, even sessions of a dead
// member that have something on that shard.
func TestShards_OneStandsStill(t *testing.T) {
	t.Parallel()
	const shard = 3
	ens, still, begin := embedkit.Stalling(t, shard)
	ctx := bounded(t)
	slow := embedkit.OnShard[shard-1]
	others := []string{embedkit.OnShard[0], embedkit.OnShard[1], embedkit.OnShard[3]}
	long := embed.SessionOptions{Timeout: time.Minute}
	known := ens.Session(2, long)
	for _, path := range embedkit.OnShard {
		_, err := known.Set(ctx, path, nil, embed.AnyVersion)
		must(t, err)
	}
	ens.Until("the member that will be gone to own something", func() bool { // its session may expire meanwhile
		gone := ens.Session(3, embed.SessionOptions{Timeout: briefly})
		for _, path := range embedkit.OnShard {
			if _, err := gone.Create(ctx, path+"/gone", nil, embed.Ephemeral); err != nil {
				return false
			}
		}
		return true
	})
	sent := begin()
	ens.Isolate(3)
	fresh := ens.Session(1, long)
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
	var brief *embed.Session
	var opened time.Time
	ens.Until("the sessions of the member that is gone to end, and a short one to outlive its timeout", func() bool {
		if brief == nil || !connected(brief) { // a busy machine may have let it expire
			brief, opened = ens.Session(1, embed.SessionOptions{Timeout: briefly}), time.Now()
		}
		passing := ens.Session(2, long)
		for _, path := range others {
			for _, s := range []*embed.Session{known, fresh, passing} {
				embedkit.Works(t, ctx, s, path)
			}
		}
		must(t, passing.Close())
		<-time.After(50 * time.Millisecond)
		return ended() && connected(brief) && time.Since(opened) > 2*briefly
	})
	if data, _, err := known.Get(ctx, slow+"/slow"); err != nil || string(data) != "before" {
		t.Errorf("there: %q, %v", data, err)
	}
	if names, _, err := known.Children(ctx, "/"); err != nil || len(names) != len(embedkit.OnShard)+1 {
		t.Errorf("the root: %v, %v", names, err)
	}
	if n := len(ens.Node(1).Status().Shards); n != len(embedkit.OnShard) {
		t.Errorf("status of %d shards", n)
	}
	if paths, err := fresh.Ephemerals(ctx, "/"); err != nil || len(paths) != 0 {
		t.Errorf("ephemerals: %v, %v", paths, err)
	}
	for _, s := range []*embed.Session{known, fresh} {
		if !connected(s) {
			t.Errorf("session %d is not connected", s.ID())
		}
	}
	for what, wait := range map[string]func(context.Context) error{
		"Sync":             func(ctx context.Context) error { _, err := known.Sync(ctx, slow); return err },
		"Sync of the root": func(ctx context.Context) error { _, err := known.Sync(ctx, "/"); return err },
		"Ready":            func(ctx context.Context) error { return ens.Node(1).Ready(ctx) },
	} {
		impatient, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		if err := wait(impatient); err == nil {
			t.Errorf("%s did not wait for the shard that stands still", what)
		}
		cancel()
	}
	closing := ens.Session(1, long)
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
	still.End()
	embedkit.WantApplied(t, sent)
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
	ens, still, begin := embedkit.Stalling(t, 1)
	ctx := bounded(t)
	known := ens.Session(2, embed.SessionOptions{Timeout: time.Minute})
	brief := ens.Session(2, embed.SessionOptions{Timeout: briefly})
	for _, path := range embedkit.OnShard {
		_, err := known.Set(ctx, path, nil, embed.AnyVersion)
		must(t, err)
	}
	sent := begin()
	// Its member's writes elsewhere do not help.
	for now, _ := brief.State(); now == embed.Connected; now, _ = brief.State() {
		for _, path := range embedkit.OnShard[1:] {
			embedkit.Works(t, ctx, known, path)
		}
	}
	ens.Isolate(3)
	for _, path := range embedkit.OnShard[1:] {
		embedkit.Works(t, ctx, known, path)
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
	still.End()
	embedkit.WantApplied(t, sent)
	must(t, ens.Session(2, embed.SessionOptions{}).Close())
}

// Ephemerals waits for a machine that is busy with an entry, but no longer than it may.
func TestShards_EphemeralsOfOneThatStandsStill(t *testing.T) {
	t.Parallel()
	ens, still, begin := embedkit.Stalling(t, 3)
	ctx := bounded(t)
	known := ens.Session(2, embed.SessionOptions{Timeout: time.Minute})
	_, err := known.Set(ctx, embedkit.OnShard[2], nil, embed.AnyVersion)
	must(t, err)
	sent := begin()
	told := make(chan struct{})
	go func() {
		defer close(told)
		for unavailable := false; !unavailable && ctx.Err() == nil; {
			impatient, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
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
	case <-ctx.Done():
		t.Error("Ephemerals waits longer than its ctx")
	}
	still.End()
	embedkit.WantApplied(t, sent)
	<-told
}
