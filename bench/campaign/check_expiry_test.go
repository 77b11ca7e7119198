package campaign

import (
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
)

func TestFindEarlyExpiry(t *testing.T) {
	of := func(seen time.Duration, zxid embed.Zxid, jumps ...jump) past {
		l := life{Name: "s", ID: 7, Member: 1, Run: 1, Timeout: 2 * time.Second, Markers: []string{"/area0/live/s", "/area1/live/s"}, Why: embed.ErrSessionExpired.Error()}
		w := at(1000, 1001, set("/area0/a", "x", 9, 1))
		w.Member, w.Run = 1, 1
		return past{Ops: []op{w}, Lives: []life{l}, Removals: []removal{{Path: "/area0/live/s", Zxid: zxid}}, Expiries: []expiry{{7, seen + time.Second}, {7, seen}}, Jumps: jumps}
	}
	const early = 2900 * time.Millisecond
	given := of(early, 10)
	given.Expiries = nil // its own node closed it
	elsewhere := of(early, 10)
	elsewhere.Ops[0].Path = "/area1/a" // this does not keep a session alive
	portioned := of(early, 10)
	portioned.Portions = true
	// by session s, over a connection, or by another session of its process
	remote := func(by string) past {
		p := of(early, 10)
		p.Lives[0].Remote, p.Ops[0].Session = true, by
		return p
	}
	beside := of(early, 10)
	beside.Lives = append(beside.Lives, life{Name: "beside", Member: 1, Run: 1, Remote: true})
	beside.Ops[0].Session = "beside"
	hold(t, findEarlyExpiry, []badHistory{
		{"a session expires too early", of(early, 10), of(3*time.Second, 10), "the timeout is 2s"},
		{"the clock is not ahead", of(early, 10), of(3*time.Second-Blur/2, 10), "had expired"},
		{"the write came before the end", of(early, 10), of(early, 8), "its process wrote at 1.0"},
		{"the ensemble expired it", of(early, 10), given, "had expired"},
		{"the write was on the home shard", of(early, 10), elsewhere, "had expired"},
		{"the write was its own", remote("s"), remote("beside"), "had expired"},
		{"the write was its node's", of(early, 10), beside, "had expired"},
		{"sessions ended together", of(early, 10), portioned, "had expired"},
		{"nobody's clock jumped", of(early, 10), of(early, 10, jump{At: 2 * time.Second}), "had expired"},
	})
}
