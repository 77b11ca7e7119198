package client_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/lock"
)

// next returns a watch's next event.
func (w *world) next(from *embed.Watch) embed.Event {
	w.t.Helper()
	select {
	case e, ok := <-from.Events():
		if !ok {
			w.t.Fatalf("the watch has ended: %v", from.Err())
		}
		return e
	case <-time.After(time.Minute):
		w.t.Fatal("no event")
	}
	return embed.Event{}
}

// ended waits for the end of a watch, and returns why it ended.
func (w *world) ended(from *embed.Watch) error {
	w.t.Helper()
	select {
	case e, ok := <-from.Events():
		if ok {
			w.t.Errorf("one more event: %+v", e)
		}
	case <-time.After(time.Minute):
		w.t.Fatal("the watch has not ended")
	}
	return from.Err()
}

func TestWatches(t *testing.T) {
	virtually(t, func(w *world) {
		t := w.t
		ctx, s, writer := t.Context(), w.session(embed.SessionOptions{}), w.ens.Session(2, embed.SessionOptions{})
		must(t, w.put(writer, "/a", "0"))
		_, err := s.Sync(ctx, "/a")
		must(t, err)
		once, err := s.Watch(ctx, "/a", embed.WatchOnce)
		must(t, err)
		lasting, err := s.WatchWith(ctx, "/a", embed.WatchPersistent, embed.WatchOptions{Values: true})
		must(t, err)
		below, err := s.Watch(ctx, "/", embed.WatchRecursive)
		must(t, err)
		for _, data := range []string{"1", "2"} {
			must(t, w.put(writer, "/a", data))
		}
		must(t, w.put(writer, "/a/b", ""))
		if e := w.next(once); e.Type != embed.NodeDataChanged || e.Path != "/a" || e.Zxid <= once.Zxid() {
			t.Errorf("once: %+v, armed at %d", e, once.Zxid())
		}
		if err := w.ended(once); err != nil {
			t.Errorf("once: %v", err)
		}
		for _, want := range []string{"1", "2"} {
			e := w.next(lasting)
			if stat, ok := e.Stat(); string(e.Data()) != want || !ok || stat.Mzxid != e.Zxid {
				t.Errorf("a value: %q at %d, want %q", e.Data(), e.Zxid, want)
			}
		}
		e := w.next(lasting)
		if stat, ok := e.Stat(); e.Type != embed.NodeChildrenChanged || !ok || stat.NumChildren != 1 || e.Data() != nil {
			t.Errorf("a child: %v %+v %q", e, stat, e.Data())
		}
		for _, want := range []string{"/a", "/a", "/a/b"} {
			if e := w.next(below); e.Path != want || e.Data() != nil {
				t.Errorf("below: %+v, want %s", e, want)
			}
		}
		must(t, lasting.Close())
		if err := w.ended(lasting); err != nil {
			t.Errorf("closed: %v", err)
		}
		short, err := s.WatchWith(ctx, "/a", embed.WatchPersistent, embed.WatchOptions{Buffer: 1})
		must(t, err)
		for range 3 {
			must(t, w.put(writer, "/a", "3"))
		}
		w.ens.Until("the overflow", func() bool { return short.Err() != nil })
		if !errors.Is(short.Err(), embed.ErrWatchOverflow) {
			t.Errorf("a full buffer: %v", short.Err())
		}
		last, err := s.Watch(ctx, "/none", embed.WatchPersistent)
		must(t, err)
		must(t, s.Close())
		if err := w.ended(last); !errors.Is(err, embed.ErrSessionClosed) {
			t.Errorf("after the session: %v", err)
		}
	})
}

func (w *world) put(s *embed.Session, path, data string) error {
	_, err := s.Put(w.t.Context(), path, []byte(data))
	return err
}

// After a move a watch of one event tells what has changed, or goes on. Others end with a gap.
func TestWatchesAfterAMove(t *testing.T) {
	virtually(t, func(w *world) {
		t := w.t
		ctx, s := t.Context(), w.session(embed.SessionOptions{Timeout: 20 * time.Second})
		was := w.member(s)
		writer := w.ens.Session(was%3+1, embed.SessionOptions{})
		watch := func(path string, mode embed.WatchMode) *embed.Watch {
			t.Helper()
			got, err := s.Watch(ctx, path, mode)
			must(t, err)
			return got
		}
		for _, path := range []string{"/same", "/set", "/gone", "/parent"} {
			must(t, w.put(writer, path, ""))
		}
		_, err := s.Sync(ctx, "/")
		must(t, err)
		same, set, gone, parent := watch("/same", embed.WatchOnce), watch("/set", embed.WatchOnce), watch("/gone", embed.WatchOnce), watch("/parent", embed.WatchOnce)
		created, missing := watch("/created", embed.WatchOnce), watch("/missing", embed.WatchOnce)
		lasting, below := watch("/same", embed.WatchPersistent), watch("/", embed.WatchRecursive)
		w.ens.Isolate(was)
		w.ens.Until("a quorum without that member", func() bool { return w.put(writer, "/set", "new") == nil })
		must(t, w.put(writer, "/created", ""))
		must(t, w.put(writer, "/parent/child", ""))
		must(t, writer.Delete(ctx, "/gone", embed.AnyVersion))
		for _, c := range []struct {
			watch *embed.Watch
			want  embed.EventType
		}{
			{set, embed.NodeDataChanged}, {gone, embed.NodeDeleted}, {parent, embed.NodeChildrenChanged},
			{created, embed.NodeCreated}, {missing, embed.NodeCreated},
		} {
			if e := w.next(c.watch); e.Type != c.want {
				t.Errorf("%+v, want %v", e, c.want)
			}
		}
		for _, other := range []*embed.Watch{lasting, below} {
			var gap *embed.GapError
			if err := w.ended(other); !errors.Is(err, embed.ErrWatchGap) || !errors.As(err, &gap) || gap.Zxid == 0 {
				t.Errorf("a lasting watch ends with %v", err)
			}
		}
		must(t, w.put(writer, "/same", "now"))
		if e := w.next(same); e.Type != embed.NodeDataChanged {
			t.Errorf("one that went on: %+v", e)
		}
		must(t, s.Err())
		w.ens.HealAll()
	})
}

// A holder keeps its lock while all members are replaced, one after the other.
func TestRollingRestart(t *testing.T) {
	virtually(t, func(w *world) {
		t := w.t
		ctx, s := t.Context(), w.session(embed.SessionOptions{Timeout: 20 * time.Second})
		_, err := s.Create(ctx, "/mine", nil, embed.Ephemeral)
		must(t, err)
		for id := range embed.MemberID(3) {
			w.ens.Stop(id + 1)
			w.ens.Start(id + 1)
			w.open(id + 1)
			w.ens.Ready(id + 1)
			short, cancel := context.WithTimeout(ctx, time.Minute)
			_, err := s.Set(short, "/mine", nil, embed.AnyVersion)
			for errors.Is(err, embed.ErrUnknownOutcome) || errors.Is(err, embed.ErrUnavailable) {
				_, err = s.Set(short, "/mine", nil, embed.AnyVersion)
			}
			cancel()
			must(t, err)
		}
		if state, _ := s.State(); state != embed.Connected {
			t.Errorf("the session is %v", state)
		}
		must(t, s.Close())
	})
}

// D6: one transaction deletes a znode and creates it again, hidden. No event shows what the session
// may not read, neither here nor at a member.
func TestWatches_ShowNothingHidden(t *testing.T) {
	virtually(t, func(w *world) {
		t := w.t
		ctx, writer := t.Context(), w.ens.Session(1, embed.SessionOptions{Auth: []embed.Auth{{Scheme: "digest", Credential: []byte("boss:secret")}}})
		must(t, w.put(writer, "/p/x", "open"))
		var watches []*embed.Watch
		for _, s := range []*embed.Session{w.session(embed.SessionOptions{}), w.ens.Session(1, embed.SessionOptions{})} {
			_, err := s.Sync(ctx, "/p")
			must(t, err)
			for path, mode := range map[string]embed.WatchMode{"/p": embed.WatchRecursive, "/p/x": embed.WatchPersistent} {
				watch, err := s.WatchWith(ctx, path, mode, embed.WatchOptions{Values: true})
				must(t, err)
				watches = append(watches, watch)
			}
		}
		_, err := writer.Multi(ctx,
			embed.OpSet("/p/x", []byte("moved"), embed.AnyVersion),
			embed.OpDelete("/p/x", embed.AnyVersion),
			embed.OpCreateWith("/p/x", []byte("SECRET"), embed.CreateOptions{ACL: []embed.ACL{{Perms: embed.PermAll, Scheme: "auth"}}}))
		must(t, err)
		for _, watch := range watches {
			for _, want := range []embed.EventType{embed.NodeDataChanged, embed.NodeDeleted} {
				e := w.next(watch)
				if _, shown := e.Stat(); e.Type != want || shown || e.Data() != nil {
					t.Errorf("%v of %s shows %q, want %v without data", e.Type, e.Path, e.Data(), want)
				}
			}
		}
	})
}

// G5: a child of the root comes while the connection is broken, on a shard whose zxids are behind
// those of another one. A watch of the root misses neither it nor one that has gone again.
func TestWatches_OfTheRootAcrossABreak(t *testing.T) {
	onOutages(t, 4, func(w *world, o *outage, s, writer *embed.Session) {
		t := w.t
		ctx, busy := t.Context(), onShard(2, 0)
		must(t, w.put(writer, busy, ""))
		for range 50 {
			must(t, w.put(writer, busy, ""))
		}
		must(t, w.put(writer, onShard(2, 100), "")) // the root's newest child by its zxid
		for i, change := range []func(child string){
			func(child string) { must(t, w.put(writer, child, "")) },
			func(child string) {
				must(t, w.put(writer, child, ""))
				must(t, writer.Delete(ctx, child, embed.AnyVersion))
			},
		} {
			_, err := s.Sync(ctx, "/")
			must(t, err)
			watch, err := s.Watch(ctx, "/", embed.WatchOnce)
			must(t, err)
			o.begin()
			change(onShard(3, 100*i))
			o.end()
			if e := w.next(watch); e.Type != embed.NodeChildrenChanged || e.Path != "/" {
				t.Errorf("%+v", e)
			}
		}
	})
}

// A lock waits for a contender that its session may not read, although the session is told nothing of
// that contender's end.
func TestLock_BehindAHiddenContender(t *testing.T) {
	virtually(t, func(w *world) {
		t, s := w.t, w.session(embed.SessionOptions{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		owner := w.ens.Session(1, embed.SessionOptions{Auth: []embed.Auth{{Scheme: "digest", Credential: []byte("boss:secret")}}})
		_, err := owner.Create(ctx, "/lock", nil, embed.Container)
		must(t, err)
		o := embed.CreateOptions{Mode: embed.EphemeralSequential, ACL: embed.CreatorACL()}
		first, _, err := owner.CreateWith(ctx, "/lock/_c_x-lock-", nil, o)
		must(t, err)
		granted := make(chan error, 1)
		go func() {
			_, err := lock.NewMutex(s, "/lock").Lock(ctx)
			granted <- err
		}()
		synctest.Wait()
		<-time.After(time.Second)
		select {
		case err := <-granted:
			t.Fatalf("granted before its turn: %v", err)
		default:
		}
		must(t, owner.Delete(ctx, first, embed.AnyVersion))
		must(t, <-granted)
	})
}

// A WatchOnce whose znode may no longer be read when the connection is back ends with ErrNoAuth. It
// does not tell what has changed.
func TestWatches_HiddenAcrossABreak(t *testing.T) {
	onOutages(t, 1, func(w *world, o *outage, s, writer *embed.Session) {
		t := w.t
		ctx := t.Context()
		must(t, w.put(writer, "/a", "1"))
		_, err := s.Sync(ctx, "/a")
		must(t, err)
		watch, err := s.Watch(ctx, "/a", embed.WatchOnce)
		must(t, err)
		o.begin()
		_, err = writer.SetACL(ctx, "/a", []embed.ACL{{Perms: embed.PermAll &^ embed.PermRead, Scheme: "world", ID: "anyone"}}, embed.AnyVersion)
		must(t, err)
		must(t, w.put(writer, "/a", "2"))
		o.end()
		if e, ok := <-watch.Events(); ok {
			t.Errorf("told of %v", e)
		}
		if err := watch.Err(); !errors.Is(err, embed.ErrNoAuth) {
			t.Errorf("the watch ended with %v", err)
		}
	})
}
