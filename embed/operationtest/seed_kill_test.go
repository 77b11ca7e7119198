package operationtest

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/internal/inside"
	"github.com/vivarium-go/vivarium/internal/testkit"
)

// A loss is a leader that is killed while it loads a shard.
type loss struct {
	shard, part int  // from 1; the first part only begins
	before      bool // the part is in the leader's log, and nowhere else
}

// The leader of a shard is killed right before and right after it has committed each part of a
// backup. The other two load the rest without it. Then it comes back, and has the same.
func TestSeed_LeaderLostAtEveryPart(t *testing.T) {
	var p *past
	for _, shards := range []int{1, 4} {
		var counts []int
		if p == nil {
			synctest.Test(t, func(t *testing.T) { p = newPast(t, 4) })
		}
		synctest.Test(t, func(t *testing.T) { counts = countParts(t, p, shards) })
		hits, runs := 0, 0
		for i, parts := range counts {
			if parts < 3 {
				t.Fatalf("%d parts of shard %d are too few", parts, i+1)
			}
			for part := 1; part <= parts; part++ {
				for _, before := range []bool{false, true} {
					if !testkit.Night() && (part+i)%3 > 0 || shards > 1 && before == (part%2 > 0) {
						continue // by day a third of the parts; of several shards each part has one loss of the two
					}
					l := loss{shard: i + 1, part: part, before: before}
					t.Run(fmt.Sprintf("%d shards, %+v", shards, l), func(t *testing.T) {
						synctest.Test(t, func(t *testing.T) {
							if runs++; loseLeader(t, p, shards, l) {
								hits++
							}
						})
					})
				}
			}
		}
		if t.Logf("%d shards: %v parts, %d of %d leaders were lost where they should", shards, counts, hits, runs); hits < runs/2 {
			t.Errorf("only %d of %d leaders were lost where they should", hits, runs)
		}
	}
}

// seededInParts returns three stopped members that begin with a backup in parts.
func seededInParts(t *testing.T, p *past, shards int) *embedtest.Ensemble {
	size := 400
	if shards > 1 { // fewer parts of each
		size = 300
	}
	return embedtest.New(t, 3, embedtest.Options{Stopped: true, Config: func(c *embed.Config) {
		c.Shards, c.Seed, c.Inside = shards, p.seed, &inside.Seams{Part: size}
	}})
}

// loaded returns how many parts of a shard a member has applied, with the first one that only
// begins; see parts.
func loaded(n *embed.Node, shard int) int {
	zxid := n.Status().Shards[shard-1].Zxid
	if zxid < 1<<32 {
		return 0
	}
	return 1 + int(zxid%(1<<12))
}

// countParts returns how many parts each shard has when nobody disturbs the loading.
func countParts(t *testing.T, p *past, shards int) (counts []int) {
	t.Helper()
	ens := seededInParts(t, p, shards)
	for _, id := range ens.Members() {
		ens.Start(id)
	}
	ens.Ready(1)
	for shard := 1; shard <= shards; shard++ {
		counts = append(counts, loaded(ens.Node(1), shard))
	}
	return counts
}

// loseLeader loads a backup with a loss. It reports whether the loss was where it should be.
func loseLeader(t *testing.T, p *past, shards int, l loss) (hit bool) {
	t.Helper()
	ens := seededInParts(t, p, shards)
	for _, id := range ens.Members() {
		ens.Start(id)
	}
	at := l.part
	if l.before {
		at--
	}
	var victim embed.MemberID
	for end := time.Now().Add(time.Minute); victim == 0; <-time.After(100 * time.Microsecond) { // parts take 2 ms
		if time.Now().After(end) {
			t.Fatalf("nobody loads part %d", l.part)
		}
		for _, id := range ens.Members() {
			n := ens.Node(id)
			if status := n.Status(); status.Leading(status.Shards[l.shard-1]) && loaded(n, l.shard) >= at {
				victim = id
				break
			}
		}
	}
	if l.before && at > 0 {
		ens.Isolate(victim)
		<-time.After(5 * time.Millisecond) // it proposes the part
	}
	others := slices.DeleteFunc(ens.Members(), func(id embed.MemberID) bool { return id == victim })
	hit = true
	for _, id := range others {
		hit = hit && loaded(ens.Node(id), l.shard) <= at
	}
	ens.Kill(victim)
	ens.HealAll()
	for _, id := range others {
		ens.Ready(id)
		wantZnodes(t, p.session(ens, id), p)
	}
	ens.Start(victim)
	wantPast(t, ens, p)
	return hit
}
