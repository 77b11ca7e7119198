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
	newest []embed.Zxid // by shard: the zxid of its newest event, or where it was armed
	ended  bool
}

// drain receives the buffered events.
func (t *stream) drain() (events []event) {
	for {
		select {
		case e, ok := <-t.watch.Events():
			if !ok {
				t.ended = true
				return events
			}
			on := t.on(e.Path)
			*on = max(*on, e.Zxid)
			events = append(events, event{e.Type, e.Path, e.Zxid})
		default:
			return events
		}
	}
}

// on returns the newest zxid of the shard of a path.
func (t *stream) on(path string) *embed.Zxid { return &t.newest[placeOf(path, len(t.newest))] }

// watch arms a watch and reports its stream as it comes. A notice says that the watch is armed, and
// where: not before Since, and not after Zxids. Now and then watch reads a znode that the watch
// covers. What the read shows must have been in the buffer before. At the end it syncs. If the Sync
// succeeds, the watch has delivered everything up to r.Zxids; otherwise r.Zxids is empty.
func (m *Member) watch(ctx context.Context, n *embed.Node, s *embed.Session, q *Request, r *Reply) error {
	since := zxids(n)
	w, err := s.Watch(ctx, q.Path, embed.WatchMode(q.Mode))
	if err != nil {
		return err
	}
	defer w.Close()
	t := &stream{watch: w, newest: zxids(n)}
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
		<-every.C
	}
	if !t.ended {
		if _, err := s.Sync(ctx, q.Path); err == nil {
			shown := zxids(n)
			report()
			if !t.ended {
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
