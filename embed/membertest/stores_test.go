package membertest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/internal/embedkit"
)

// hangs lets a member's disk hang. Nobody writes, so its heartbeats go on.
func hangs(e *embedtest.Ensemble, place embed.MemberID) (free func()) {
	e.Faults(place).SetDisk(embedtest.Disk{Delay: 10 * time.Hour, On: embedtest.Changes})
	return func() { e.Faults(place).SetDisk(embedtest.Disk{}) }
}

// writes has the ensemble acknowledge a write at a place.
func writes(t *testing.T, e *embedtest.Ensemble, place embed.MemberID, path string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	s, err := e.Node(place).NewSession(ctx, embed.SessionOptions{})
	if err == nil {
		_, err = s.Create(ctx, path, nil, embed.Persistent)
	}
	if err != nil {
		t.Errorf("nobody can write: %v", err)
	}
}

// M67: a voter dies. A learner whose disk hangs answers heartbeats, but it must not take the place: of
// four voters three would have to store, and two could. Another learner takes it.
func TestStores_ALearnerWhoseDiskHangsIsNotPromoted(t *testing.T) {
	t.Parallel()
	for _, spares := range []int{1, 2} {
		embedkit.Growing(t, 3, func(c *embed.Config) { c.MaxSessionTimeout, c.DeadAfter = 2*time.Second, 4*time.Second }, func(t *testing.T, e *embedtest.Ensemble) {
			embedkit.Founded(e)
			four := embedkit.Joined(e, spares)[0]
			<-time.After(20 * time.Second) // they are stable
			e.TransferLeadership(1)
			<-time.After(20 * time.Second)
			e.Kill(3)
			defer hangs(e, four)()
			if spares > 1 {
				embedkit.Voting(e, 1, 1, 2, 5)
			} else {
				<-time.After(30 * time.Second)
			}
			writes(t, e, 1, "/after")
		})
	}
}

// M67: a member is removed, or leaves, beside a voter whose disk hangs. That would leave two voters, of
// which one stores.
func TestStores_NobodyGoesBesideAVoterWhoseDiskHangs(t *testing.T) {
	t.Parallel()
	for what, goes := range map[string]func(ctx context.Context, e *embedtest.Ensemble) error{
		"remove": func(ctx context.Context, e *embedtest.Ensemble) error { return e.Node(1).RemoveMember(ctx, 3) },
		"leave":  func(ctx context.Context, e *embedtest.Ensemble) error { return e.Node(3).Leave(ctx) },
	} {
		embedkit.Growing(t, 3, nil, func(t *testing.T, e *embedtest.Ensemble) {
			embedkit.Founded(e)
			e.TransferLeadership(1)
			<-time.After(20 * time.Second)
			defer hangs(e, 2)()
			<-time.After(5 * time.Second)
			if err := goes(bounded(t), e); !errors.Is(err, embed.ErrUnsafe) {
				t.Errorf("%s: %v", what, err)
			}
			writes(t, e, 1, "/after")
		})
	}
}

// C12.4: a leader that is stopped hands over to a voter that stores, whatever the order of the ids.
func TestStores_AStopHandsOverToWhoLives(t *testing.T) {
	t.Parallel()
	for _, dead := range []embed.MemberID{2, 5} {
		embedkit.Growing(t, 5, func(c *embed.Config) { c.Voters, c.Tick = 5, embed.DefaultTick }, func(t *testing.T, e *embedtest.Ensemble) {
			e.TransferLeadership(1)
			<-time.After(3 * time.Second)
			e.Kill(dead)
			<-time.After(3 * time.Second)
			term := e.Node(3).Status().Shards[0].Term
			began := time.Now()
			e.Stop(1)
			writes(t, e, 3, "/after")
			// An election would begin after half a second of silence.
			took, terms := time.Since(began), e.Node(3).Status().Shards[0].Term-term
			if took > 300*time.Millisecond || terms > 1 {
				t.Errorf("with member %d dead, the stop of the leader and a write take %v and %d terms", dead, took, terms)
			}
		})
	}
}
