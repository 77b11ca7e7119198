package campaign

import (
	"context"
	"errors"
	"fmt"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/view"
)

// view opens a view and reports its changes as the events of a watch. It ends when changes in
// between are unknown. It checks that each change follows from what the view had shown, and now and
// then that the view shows what a read does.
func (m *Member) view(ctx context.Context, n opener, s *embed.Session, q *Request, r *Reply) error {
	v, err := view.Open(ctx, s, q.Path, view.Options[string]{})
	if err != nil {
		return err
	}
	defer v.Close()
	shown, since := stateOf(v)
	armed := make([]embed.Zxid, m.shards)
	armed[placeOf(q.Path, len(armed))] = since
	q.say(Reply{Since: armed, Zxids: armed}, true)
	ctx, cancel := limit(ctx, q.Length)
	defer cancel()
	var events []event
	defer func() { q.say(Reply{Events: events}, true) }()
	for c, err := range v.Changes(ctx, since) {
		if gap := (*embed.GapError)(nil); errors.As(err, &gap) || c.Repaired {
			return embed.ErrWatchGap
		}
		if err != nil {
			return unless(ctx.Err(), err)
		}
		if was := shown[c.Path]; c.Old.Stat.Mzxid != was {
			r.Wrong = fmt.Sprintf("the view of %s changed %s at zxid %d from mzxid %d, but had shown mzxid %d", q.Path, c.Path, c.Zxid, c.Old.Stat.Mzxid, was)
			return nil
		}
		if shown[c.Path] = c.New.Stat.Mzxid; c.Type == embed.NodeDeleted {
			delete(shown, c.Path)
		}
		events = append(events, event{c.Type, c.Path, c.Zxid})
		if r.Wrong = compareView(ctx, s, v, c.Path); r.Wrong != "" {
			return nil
		}
		if len(events) == 64 {
			q.say(Reply{Events: events}, true)
			events = nil
		}
	}
	return nil
}

// stateOf returns the Mzxid of all that a view shows, and the zxid at which it does.
func stateOf(v *view.View[string]) (map[string]embed.Zxid, embed.Zxid) {
	for {
		at := v.Zxid()
		all := make(map[string]embed.Zxid)
		for path, e := range v.All() {
			all[path] = e.Stat.Mzxid
		}
		if v.Zxid() == at {
			return all, at
		}
	}
}

// compareView describes how a view differs from an earlier read, or returns nothing.
func compareView(ctx context.Context, s *embed.Session, v *view.View[string], path string) string {
	data, stat, err := s.Get(ctx, path)
	if err != nil || v.Await(ctx, stat.Mzxid) != nil {
		return ""
	}
	e, ok := v.Get(path)
	switch {
	case ok && e.Stat.Mzxid < stat.Mzxid:
		return fmt.Sprintf("the view shows %s of mzxid %d, and had to show %d", path, e.Stat.Mzxid, stat.Mzxid)
	case ok && e.Stat.Mzxid == stat.Mzxid && (e.Value != string(data) || e.Stat.Version != stat.Version):
		return fmt.Sprintf("the view shows %q for %s of mzxid %d, version %d, and a read %q, version %d", e.Value, path, stat.Mzxid, e.Stat.Version, data, stat.Version)
	case !ok:
		if _, now, err := s.Get(ctx, path); err == nil && now.Mzxid == stat.Mzxid {
			return fmt.Sprintf("the view does not show %s, which was written at zxid %d and is there", path, stat.Mzxid)
		}
	}
	return ""
}
