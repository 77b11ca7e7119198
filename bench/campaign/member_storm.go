package campaign

import (
	"context"
	"fmt"

	"github.com/vivarium-go/vivarium/embed"
)

const stormPath = "/storm"

// stormOf returns the znode that a member's storms set in an area.
func stormOf(area string, id embed.MemberID) string {
	return fmt.Sprintf("%s%s-%d", area, stormPath, id)
}

const (
	// stormSets is enough for a second batch beside the first, so a lossy link can lose the first alone.
	stormSets = 400
	// stormWatches limits how many watches one storm arms.
	stormWatches = 300
)

// storm sets one znode many times without waiting, so that the shard applies the transactions of
// whole batches right after each other. Meanwhile it arms one once-watch after another. A watch
// that is armed anywhere but exactly between two transactions would show. When everything is over,
// each watch reports its first event.
func (m *Member) storm(ctx context.Context, s *embed.Session, q *Request, r *Reply) error {
	var sets []*embed.Pending
	for i := range stormSets {
		sets = append(sets, s.Submit(ctx, embed.OpSet(q.Path, stormData(q.Data, i), embed.AnyVersion)))
	}
	var watches []*embed.Watch
	for over := false; !over && len(watches) < stormWatches; {
		select {
		case <-sets[len(sets)-1].Done():
			over = true
		default:
		}
		w, err := s.Watch(ctx, q.Path, embed.WatchOnce)
		if err != nil {
			break
		}
		watches = append(watches, w)
		if len(watches) == 1 {
			<-sets[0].Done() // the storm begins
		}
	}
	for _, p := range sets {
		results, err := p.Result()
		set := stormSet{Outcome: outcomeOf(err)}
		if err == nil {
			set.Stat = results[0].Stat
		}
		r.Sets = append(r.Sets, set)
	}
	synced, err := s.Sync(ctx, q.Path)
	if err != nil {
		synced = 0
	}
	for _, w := range watches {
		t := tape{Path: q.Path, Mode: embed.WatchOnce, Armed: w.Zxid(), Synced: synced}
		select {
		case e, ok := <-w.Events():
			if ok {
				t.Events = []event{{e.Type, e.Path, e.Zxid}}
			} else {
				t.Synced, t.Why = 0, text(w.Err())
			}
		default:
		}
		_ = w.Close()
		r.Tapes = append(r.Tapes, t)
	}
	return nil
}

func stormData(id string, i int) []byte { return fmt.Appendf(nil, "%s.%d", id, i) }
