package campaign

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/vivarium-go/vivarium/embed"
)

// drainEvery is how often a stream is emptied. A stream holds 64 events.
func (m *Member) drainEvery() time.Duration { return 10 * m.Ask }

// A stream is one watch and what it has delivered.
type stream struct {
	watch  *embed.Watch
	first  []event      // received before the next drain
	newest []embed.Zxid // by shard: the zxid of its newest event, or where it was armed
	ended  bool
}

// drain receives the buffered events.
func (t *stream) drain() (events []event) {
	events, t.first = t.first, nil
	for !t.ended {
		select {
		case e, ok := <-t.watch.Events():
			if t.ended = !ok; ok {
				events = append(events, t.note(e))
			}
		default:
			return events
		}
	}
	return events
}

func (t *stream) note(e embed.Event) event {
	on := t.on(e.Path)
	*on = max(*on, e.Zxid)
	return event{e.Type, e.Path, e.Zxid}
}

// await receives the next event, if there is one before the time is up.
func (t *stream) await(up <-chan time.Time) (e embed.Event, received bool) {
	select {
	case e, received = <-t.watch.Events():
		if t.ended = !received; received {
			t.first = append(t.first, t.note(e))
		}
	case <-up:
	}
	return e, received
}

// behind reports whether a read, made after an event was received, shows an earlier state than the
// event. If the znode is missing it may have been deleted since.
func behind(e embed.Event, stat embed.Stat, exists bool) bool {
	switch {
	case !exists:
		return false
	case e.Type == embed.NodeDeleted:
		return stat.Czxid < e.Zxid // it may exist anew since that very transaction
	case e.Type == embed.NodeChildrenChanged:
		return stat.Pzxid < e.Zxid
	}
	return stat.Mzxid < e.Zxid
}

// on returns the newest zxid of the shard of a path.
func (t *stream) on(path string) *embed.Zxid { return &t.newest[placeOf(path, len(t.newest))] }

// watch arms a watch and reports its stream as it comes. A notice says that the watch is armed, and
// where: not before Since, and not after Zxids. Now and then watch reads a znode that the watch
// covers. What the read shows must have been in the buffer before. It also reads the znode of an
// event as soon as it has received it. That read must show the change. At the end it syncs. If the Sync
// succeeds, the watch has delivered everything up to r.Zxids; otherwise r.Zxids is empty.
func (m *Member) watch(ctx context.Context, n opener, s *embed.Session, q *Request, r *Reply) error {
	since, err := m.shown(ctx, n, s)
	if err != nil {
		return err
	}
	w, err := s.Watch(ctx, q.Path, embed.WatchMode(q.Mode))
	if err != nil {
		return err
	}
	defer w.Close()
	armedAt, err := m.shown(ctx, n, s)
	if err != nil {
		return err
	}
	t := &stream{watch: w, newest: armedAt}
	if armed := w.Zxid(); armed != 0 { // a watch on one shard knows its zxid
		since[placeOf(q.Path, len(since))], *t.on(q.Path) = armed, armed
	}
	q.say(Reply{Since: since, Zxids: slices.Clone(t.newest)}, true)
	report := func() {
		if events := t.drain(); len(events) > 0 {
			q.say(Reply{Events: events}, true)
		}
	}
	every := time.NewTicker(stretch(m.drainEvery()))
	defer every.Stop()
	end := m.Now() + q.Length
	for m.Now() < end && m.rest.Err() == nil && !t.ended && r.Wrong == "" {
		if q.Data != "" {
			stat, ok, err := s.Exists(ctx, q.Data)
			report()
			// After it fires, a once-watch has nothing more to deliver.
			if err == nil && ok && stat.Mzxid > *t.on(q.Data) && !t.ended {
				r.Wrong = fmt.Sprintf("a read showed %s of zxid %d, but the watch of %s, armed at %d, had delivered only up to %d", q.Data, stat.Mzxid, q.Path, since, *t.on(q.Data))
			}
		} else {
			report()
		}
		e, received := t.await(every.C)
		if !received {
			continue
		}
		// An event of a once-watch may stand for all that an install has changed. The Stat of the root
		// combines the zxids of several shards.
		if embed.WatchMode(q.Mode) != embed.WatchOnce && (e.Path != rootPath || len(t.newest) == 1) {
			if stat, exists, err := s.Exists(ctx, e.Path); err == nil && behind(e, stat, exists) {
				r.Wrong = fmt.Sprintf("after %v of zxid %d the watch of %s read %s of czxid %d, mzxid %d, pzxid %d", e.Type, e.Zxid, q.Path, e.Path, stat.Czxid, stat.Mzxid, stat.Pzxid)
			}
		}
		<-every.C
	}
	if !t.ended {
		if _, err := s.Sync(ctx, q.Path); err == nil {
			shown, err := m.shown(ctx, n, s)
			report()
			if !t.ended && err == nil {
				r.Zxids = shown
			}
		}
	}
	report()
	if err := w.Err(); err != nil {
		return err
	}
	if t.ended && embed.WatchMode(q.Mode) != embed.WatchOnce {
		return errors.New("the stream ended without a reason")
	}
	return nil
}
