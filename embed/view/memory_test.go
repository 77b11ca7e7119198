package view_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/view"
	"github.com/vivarium-go/vivarium/internal/testkit"
)

// large is data of which 64 fill the history of a view, or the buffer of its watch.
func large(i int) []byte { return fmt.Appendf(nil, "%d:%s", i, strings.Repeat("x", 512<<10)) }

// setLarge sets a znode n times and returns the zxids.
func setLarge(
	ctx context.Context, t *testing.T, s *embed.Session, path string, n int,
) (zxids []embed.Zxid) {
	t.Helper()
	for i := range n {
		stat, err := s.Set(ctx, path, large(i), embed.AnyVersion)
		must(t, err)
		zxids = append(zxids, stat.Mzxid)
	}
	return zxids
}

// gapAt reports whether a loop over Changes that begins at a zxid is told of a gap.
func gapAt(ctx context.Context, t *testing.T, v *view.View[string], since embed.Zxid) (gap bool) {
	t.Helper()
	next(t, ctx, v, since, func(_ view.Change[string], err error) {
		gap = errors.Is(err, embed.ErrWatchGap)
		if !gap {
			must(t, err)
		}
	})
	return gap
}

// D14: a view keeps the values of changes up to a bound in bytes, however few the changes are.
func TestChanges_OfLargeData(t *testing.T) {
	if testing.Short() {
		t.Skip("it moves much data, which says nothing of races")
	}
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ctx := bounded(t)
		s := one(t, 1).Session(1, embed.SessionOptions{Timeout: time.Minute})
		_, err := s.Create(ctx, "/t", large(0), embed.Persistent)
		must(t, err)
		v, err := view.Open(ctx, s, "/t", view.Options[string]{})
		must(t, err)
		before := v.Zxid()
		var zxids []embed.Zxid
		for range 10 { // slowly enough for its watch
			zxids = append(zxids, setLarge(ctx, t, s, "/t", 10)...)
			must(t, v.Await(ctx, zxids[len(zxids)-1]))
		}
		if !gapAt(ctx, t, v, before) {
			t.Error("100 values of 512 KiB are kept")
		}
		if gapAt(ctx, t, v, zxids[len(zxids)-51]) {
			t.Error("50 values of 512 KiB are not kept")
		}
	})
}

// D14: a transaction that alone has more than a view keeps is a gap, and the view shows it.
func TestChanges_OfALargeTransaction(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ctx := bounded(t)
		s := one(t, 1).Session(1, embed.SessionOptions{Timeout: time.Minute})
		_, err := s.Create(ctx, "/t", nil, embed.Persistent)
		must(t, err)
		v, err := view.Open(ctx, s, "/t", view.Options[string]{})
		must(t, err)
		var ops []embed.Op
		for i := range 70 {
			stat, err := s.Put(ctx, fmt.Sprintf("/t/%d", i), large(i))
			must(t, err)
			must(t, v.Await(ctx, stat.Mzxid))
			ops = append(ops, embed.OpDelete(fmt.Sprintf("/t/%d", i), embed.AnyVersion))
		}
		before := v.Zxid()
		_, err = s.Multi(ctx, ops...)
		must(t, err)
		last, err := s.Set(ctx, "/t", []byte("last"), embed.AnyVersion)
		must(t, err)
		must(t, v.Await(ctx, last.Mzxid))
		if !gapAt(ctx, t, v, before) {
			t.Error("70 values of 512 KiB are kept")
		}
		if gapAt(ctx, t, v, last.Mzxid-1) {
			t.Error("the change after them is not kept")
		}
		if _, there := v.Get("/t/0"); there {
			t.Error("the view has not applied the transaction")
		}
	})
}

// D14: while a Decode hangs, changes wait up to a bound in bytes. Then the view reads again.
func TestDecode_ThatHangsBesideLargeData(t *testing.T) {
	if testing.Short() {
		t.Skip("it moves much data, which says nothing of races")
	}
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ctx := bounded(t)
		s := one(t, 1).Session(1, embed.SessionOptions{Timeout: time.Minute})
		for _, path := range []string{"/t", "/t/a", "/t/brake"} {
			_, err := s.Create(ctx, path, nil, embed.Persistent)
			must(t, err)
		}
		b := newBrake()
		v, err := view.Open(ctx, s, "/t", view.Options[string]{Codec: b.codec()})
		must(t, err)
		b.hold(ctx, t, s, "/t/brake")
		zxids := setLarge(ctx, t, s, "/t/a", 100)
		must(t, s.Await(ctx, "/t", zxids[99]))
		close(b.release)
		must(t, v.Await(ctx, zxids[99]))
		var newest view.Change[string]
		since := zxids[98]
		next(t, ctx, v, since, func(c view.Change[string], err error) {
			must(t, err)
			newest = c
		})
		if !newest.Repaired {
			t.Error("100 values of 512 KiB have waited for a Decode")
		}
		if e, _ := v.Get("/t/a"); e.Value != string(large(99)) {
			t.Errorf("the view shows %.10q", e.Value)
		}
	})
}

// D14: a Decode that hangs while the view reads its subtree keeps nothing in memory that others
// write meanwhile. In a bubble the log would be in memory, too.
func TestOpen_BesideADecodeThatHangs(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine: nothing for the race detector")
	}
	ctx := bounded(t)
	s := one(t, 1).Session(1, embed.SessionOptions{})
	for _, path := range []string{"/t", "/other"} {
		_, err := s.Create(ctx, path, []byte("brake"), embed.Persistent)
		must(t, err)
	}
	b, opened := newBrake(), make(chan error, 1)
	go func() {
		v, err := view.Open(ctx, s, "/t", view.Options[string]{Codec: b.codec()})
		if err == nil {
			err = v.Close()
		}
		opened <- err
	}()
	<-b.entered
	before := testkit.Heap()
	setLarge(ctx, t, s, "/other", 200)
	if grown := (testkit.Heap() - before) >> 20; grown > 60 {
		t.Errorf("the heap has grown by %d MiB while 100 MiB were written", grown)
	}
	close(b.release)
	must(t, <-opened)
}
