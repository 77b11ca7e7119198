//go:build unix

package processtest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/internal/testkit"
)

// TestGuarantee_Durable kills all members at once under load, again and again. Everything
// acknowledged must be there.
func TestGuarantee_Durable(t *testing.T) {
	t.Parallel()
	killUnderLoad(t, rounds(3, 10), func(*rand.Rand, *ensemble) []embed.MemberID { return []embed.MemberID{1, 2, 3} })
}

// TestGuarantee_ExactlyOnce kills one member or all of them at random moments under load, sometimes
// while another one is stopped for a while. Nothing acknowledged is lost, and nothing is applied
// twice. Nothing is applied that was reported as not applied. No two hold a lock, and all members
// agree.
func TestGuarantee_ExactlyOnce(t *testing.T) {
	t.Parallel()
	var hand []string // a new one every five rounds, so that each kind occurs
	killUnderLoad(t, rounds(5, 20), func(rng *rand.Rand, e *ensemble) []embed.MemberID {
		if len(hand) == 0 {
			hand = []string{"all", "leader", "leader", "any", "any"}
			rng.Shuffle(len(hand), func(i, j int) { hand[i], hand[j] = hand[j], hand[i] })
		}
		kind := hand[0]
		hand = hand[1:]
		switch kind {
		case "all":
			return e.ids
		case "leader":
			return []embed.MemberID{e.leader()}
		default:
			return []embed.MemberID{e.ids[rng.IntN(len(e.ids))]}
		}
	})
}

func killUnderLoad(t *testing.T, rounds int, choose func(*rand.Rand, *ensemble) []embed.MemberID) {
	rng := newRandom(t)
	e := newEnsemble(t, quickTick)
	e.startAll()
	l := startLoad(t, e)
	began := time.Now()
	for n := range rounds {
		l.flow()
		if rng.IntN(3) == 0 {
			// Its answer does not matter.
			e.run(e.ids[rng.IntN(len(e.ids))]).send(request{Call: callSnapshot})
		}
		pass(rng, 200*time.Millisecond)
		victims := slices.Clone(choose(rng, e))
		rng.Shuffle(len(victims), func(i, j int) { victims[i], victims[j] = victims[j], victims[i] })
		leader := e.agreed()
		survivors := without(e.ids, victims)
		var paused *run
		if len(survivors) > 0 && rng.IntN(3) == 0 {
			// A member that wakes up still sends and reads messages from before the kill.
			paused = e.run(survivors[rng.IntN(len(survivors))])
			paused.stop()
			pass(rng, 100*time.Millisecond)
		}
		killed := time.Now()
		e.kill(victims...)
		l.refresh()
		state := ""
		if len(survivors) > 0 && paused == nil {
			e.until("a write through a survivor", func() bool { return l.newest(survivors...).After(killed) })
			state = fmt.Sprintf("; a write through the others after %v", time.Since(killed).Round(time.Millisecond))
		}
		for _, id := range victims {
			pass(rng, 100*time.Millisecond)
			e.start(id)
			if rng.IntN(4) == 0 {
				pass(rng, 200*time.Millisecond)
				e.kill(id)
				e.start(id)
			}
		}
		if paused != nil {
			// Mostly longer than an election, sometimes longer than the lockers' timeout.
			pass(rng, 2*time.Second)
			paused.resume()
			state = fmt.Sprintf(", and %d was stopped for %v", paused.member, time.Since(killed).Round(time.Millisecond))
		}
		for _, id := range victims {
			e.ready(id)
		}
		t.Logf("round %2d: killed %v while %d led%s; all ready after %v", n+1, victims, leader, state, time.Since(killed).Round(time.Millisecond))
		if t.Failed() {
			break
		}
	}
	l.flow()
	l.stop()
	t.Logf("%d rounds in %v", rounds, time.Since(began).Round(time.Millisecond))
	l.report(t)

	// Restarted processes have no sessions, and show exactly what was on disk.
	e.kill(e.ids...)
	e.startAll()
	tree := e.sameTrees()
	l.verify(t, tree)
	e.kill(e.ids...)
	e.startAll()
	compare(t, "the ensemble", tree, "the same after another restart", e.sameTrees())
}

func without(ids, out []embed.MemberID) []embed.MemberID {
	return slices.DeleteFunc(slices.Clone(ids), func(id embed.MemberID) bool { return slices.Contains(out, id) })
}

// pass waits for a random time of at most limit, so that the next signal comes at a random moment.
func pass(rng *rand.Rand, limit time.Duration) {
	<-time.After(time.Duration(rng.Int64N(int64(limit))))
}

// TestPausedFollower stops a follower while the others apply some hundreds of writes, by night some
// thousands, and lets it go on. The others never wait for it, and it catches up. It logs how long the slowest write took,
// and whether the leader stayed: a follower that comes back costs the leader work.
func TestPausedFollower(t *testing.T) {
	t.Parallel()
	writes := 500
	if testkit.Night() {
		writes = 3000
	}
	e := newEnsemble(t, quickTick)
	e.startAll()
	leader := e.leader()
	follower := e.run(e.others(leader)[0])
	s := e.session(leader, "writer", loadTimeout)
	var slowest time.Duration
	issued, acknowledged := 0, 0
	write := func() {
		began := time.Now()
		a, _ := s.callWithin(request{Call: callCreate, Session: "writer", Path: "/n-", Mode: int(embed.Sequential)})
		slowest = max(slowest, time.Since(began))
		issued++
		if a.Outcome == applied {
			acknowledged++
		}
	}
	follower.stop()
	for range writes {
		write()
	}
	t.Logf("%d writes without it, the slowest took %v", writes, slowest.Round(time.Millisecond))
	behind := s.must(t, request{Call: callStatus}).Status
	slowest = 0
	resumed := time.Now()
	follower.resume()
	e.until("the follower to catch up", func() bool {
		write()
		now := follower.must(t, request{Call: callStatus}).Status
		return !slices.ContainsFunc(now.Shards, func(s embed.ShardStatus) bool { return s.Zxid < behind.Shards[s.Shard-1].Zxid })
	})
	t.Logf("caught up %v after it was let go on; the slowest write meanwhile took %v; member %d led, member %d leads",
		time.Since(resumed).Round(time.Millisecond), slowest.Round(time.Millisecond), leader, e.leader())
	s.must(t, request{Call: callClose, Session: "writer"})
	created := 0
	for _, z := range e.sameTrees() {
		if strings.HasPrefix(z.Path, "/n-") {
			created++
		}
	}
	if created < acknowledged || created > issued {
		t.Errorf("%d writes were applied; %d were issued and %d acknowledged", created, issued, acknowledged)
	}
}
