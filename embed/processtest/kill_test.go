//go:build unix

package processtest

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
)

// TestGuarantee_Durable kills all members at once under load, again and again. Whatever was acknowledged must be there.
func TestGuarantee_Durable(t *testing.T) {
	killUnderLoad(t, rounds(8), func(*rand.Rand, *ensemble) []embed.MemberID { return []embed.MemberID{1, 2, 3} })
}

// TestGuarantee_ExactlyOnce kills one member or all of them at random moments under load. Nothing that was acknowledged
// is lost, nothing is applied twice, nothing is applied that was said not to be, and all members agree.
func TestGuarantee_ExactlyOnce(t *testing.T) {
	killUnderLoad(t, rounds(20), func(rng *rand.Rand, e *ensemble) []embed.MemberID {
		switch rng.IntN(5) {
		case 0:
			return e.ids
		case 1, 2:
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
	var slowest time.Duration
	for n := range rounds {
		flowing := time.Now()
		l.flow()
		t.Logf("round %d: all writers acknowledged after %v", n, time.Since(flowing).Round(time.Millisecond))
		if rng.IntN(3) == 0 {
			e.run(e.ids[rng.IntN(len(e.ids))]).send(request{Call: callSnapshot}) // whatever it answers
		}
		pass(rng, 200*time.Millisecond)
		victims := slices.Clone(choose(rng, e))
		rng.Shuffle(len(victims), func(i, j int) { victims[i], victims[j] = victims[j], victims[i] })
		leader := e.agreed()
		killed := time.Now()
		e.kill(victims...)
		if len(victims) == 1 {
			survivors := e.others(victims[0])
			e.until("an acknowledged write of a survivor", func() bool { return l.newest(survivors...).After(killed) })
			took := time.Since(killed)
			slowest = max(slowest, took)
			t.Logf("round %d: member %d killed, member %d led; the others went on after %v", n, victims[0], leader, took.Round(time.Millisecond))
		} else {
			t.Logf("round %d: members %v killed, member %d led", n, victims, leader)
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
		starting := time.Now()
		for _, id := range victims {
			e.ready(id)
		}
		t.Logf("round %d: ready after %v", n, time.Since(starting).Round(time.Millisecond))
		if t.Failed() {
			break
		}
	}
	l.flow()
	l.stop()
	t.Logf("%d rounds in %v; at most %v without a write", rounds, time.Since(began).Round(time.Millisecond), slowest.Round(time.Millisecond))
	l.report(t)

	// Restarted processes have no session left, and what they loaded is what was on disk.
	e.kill(e.ids...)
	e.startAll()
	tree := e.sameTrees()
	l.verify(t, tree)
	e.kill(e.ids...)
	e.startAll()
	compare(t, "the ensemble", tree, "the same after another restart", e.sameTrees())
}

// pass lets a random time of at most limit go by, so that the next signal comes at a random moment.
func pass(rng *rand.Rand, limit time.Duration) {
	<-time.After(time.Duration(rng.Int64N(int64(limit))))
}
