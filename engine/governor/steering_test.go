package governor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/engine/ask"
	"github.com/vivarium-go/vivarium/engine/replica"
	"github.com/vivarium-go/vivarium/engine/roster"
	"github.com/vivarium-go/vivarium/replication"
	"github.com/vivarium-go/vivarium/replication/transport"
	"github.com/vivarium-go/vivarium/session"
)

// A node only runs what the governor runs.
type node struct {
	Node
	runs sync.WaitGroup
}

func (n *node) Go(fn func()) { n.runs.Go(fn) }

// silence is a network in which nobody answers. Some addresses refuse at once, the others never say
// anything. It counts how often each was dialled.
type silence struct {
	transport.Network
	mu      sync.Mutex
	dialled map[string]int
}

func (n *silence) Dial(ctx context.Context, to transport.Target) (net.Conn, error) {
	n.mu.Lock()
	n.dialled[to.Address]++
	refuses := len(to.Address)%2 == 0
	n.mu.Unlock()
	if !refuses {
		<-ctx.Done()
	}
	return nil, errors.New("nobody is there")
}

// M44: newcomers that never show up do not keep the others from being dialled: everybody has a turn
// before anybody has the next one.
func TestSteering_NewcomersThatNeverShowUpStarveNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const newcomers = 3*probesMax + 1
		nobody := &silence{dialled: make(map[string]int)}
		reach, stop := context.WithCancel(t.Context())
		var n node
		log := slog.New(slog.DiscardHandler)
		o := &Options{Node: &n, Roster: roster.New(nil, nil, log), Election: time.Second, Reach: reach}
		o.Transport = transport.New(transport.Options{Self: transport.Identity{Member: 1}, Network: nobody, Logger: log,
			Address: func(m uint64) string { return fmt.Sprintf("member-%d", m) }})
		defer func() {
			stop()
			_ = o.Transport.Close()
			n.runs.Wait()
		}()
		s := &steering{Options: o, r: &replica.Replica{Shard: 1}, probed: make(chan probe, probesMax), known: &replication.Membership{Voters: []MemberID{1}}}
		s.reached, s.tried, s.probing = make(map[session.MemberID]time.Time), make(map[session.MemberID]time.Time), make(map[session.MemberID]bool)
		s.lost = make(map[session.MemberID]time.Time)
		table := &session.MembersView{List: []session.Member{{ID: 1, Wish: session.Voter}}}
		for m := range session.MemberID(newcomers) {
			table.List = append(table.List, session.Member{ID: m + 2, Wish: session.Learner})
		}
		for begun := time.Now(); ; {
			s.probeNext(time.Now(), table)
			synctest.Wait()
			reached, most := nobody.counts()
			if reached == newcomers {
				break
			}
			if most > 1 {
				t.Fatalf("after %v somebody was dialled %d times, and %d never", time.Since(begun), most, newcomers-reached)
			}
			s.note(<-s.probed)
		}
	})
}

// counts returns how many addresses were dialled, and how often the one that was dialled most.
func (n *silence) counts() (reached, most int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, times := range n.dialled {
		most = max(most, times)
	}
	return len(n.dialled), most
}

// M46: Raft keeps the id of every member that has gone. The leader warns once when they are many,
// and admits nobody before members could no longer catch up.
func TestSteering_MembersThatHaveGoneAreCounted(t *testing.T) {
	var log bytes.Buffer
	g := &Governor{gone: count{log: slog.New(slog.NewTextHandler(&log, nil))}}
	for n, want := range map[int]int{20_000 - 1: 0, 20_000: 1, 50_000: 1} {
		g.gone.n.Store(0)
		for range 3 {
			g.gone.note(n)
		}
		if got := strings.Count(log.String(), "\n"); got != want {
			t.Errorf("with %d gone it warns %d times", n, got)
		}
		log.Reset()
	}
	g.gone.note(100_000)
	if err := g.mayAdmit(t.Context(), &ask.Question{}); err == nil || !strings.Contains(err.Error(), "100000 members have come and gone") {
		t.Errorf("it admits another one: %v", err)
	}
}
