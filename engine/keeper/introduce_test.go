package keeper

import (
	"slices"
	"testing"
	"testing/synctest"

	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/engine/enginetest"
	"github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/tree"
)

// A session is closed just when a shard has introduced it, and its parked call is about to go on.
// When Close returns, nothing of the session is left there: either the call is never sent, or Close
// has waited for an end that the shard applies after the call.
func TestCloseBesideAnIntroduction(t *testing.T) {
	for name, c := range map[string]struct {
		closeFirst bool
		want       []command.RequestKind // on that shard, in order
	}{
		"closed first":     {true, nil},
		"introduced first": {false, []command.RequestKind{command.RequestTxn, command.RequestClose}},
	} {
		t.Run(name, func(t *testing.T) {
			withKeeper(t, 2, func(t *testing.T, r *keeperRig) {
				s, there := r.open(t), r.keeper.outboxes[1]
				call := s.newTxn([]tree.Op{{Kind: tree.KindDelete, Path: "/a"}}, nil)
				if introduce, err := there.Submit(call); !introduce || err != nil {
					t.Fatalf("the call is not parked: %v", err)
				}
				introduced := make(chan error, 1)
				go func() { introduced <- s.introduceOnce(s.Context(), there, nil) }()
				r.complete(t)
				if err := <-introduced; err != nil {
					t.Fatal(err)
				}

				// What follows is Close and introduce, interleaved.
				k := r.keeper
				if !c.closeFirst && !there.Introduced(s.Owner) {
					t.Error("a live session is not introduced")
				}
				k.mu.Lock()
				k.endLocked(s, session.Closed, session.ErrClosed)
				closing := k.queueCloseLocked(s, false)
				k.mu.Unlock()
				if c.closeFirst && there.Introduced(s.Owner) {
					t.Error("a session that has ended is introduced")
				}
				k.cancelQueued(session.ErrClosed, s)
				k.pumpAll()

				var got []command.RequestKind
				for sent := r.drain(); len(sent) > 0; sent = r.drain() {
					for _, p := range sent {
						if p.Shard == there.Shard {
							for _, q := range enginetest.Decode(t, p.Cmd).Requests {
								got = append(got, q.Kind)
							}
						}
						r.completeOne(t, p)
					}
				}
				if !slices.Equal(got, c.want) {
					t.Errorf("the shard got requests of the kinds %v, want %v", got, c.want)
				}
				ends := 0
				for _, end := range closing {
					if !end.call.IsDone() {
						t.Error("Close still waits")
					}
					if end.outbox == there {
						ends++
					}
				}
				if wait := len(c.want) > 0; wait != (ends == 1) {
					t.Errorf("Close waits for %d ends there", ends)
				}
			})
		})
	}
}

// drain returns what was proposed since the last look.
func (r *keeperRig) drain() []*enginetest.Proposal {
	synctest.Wait()
	return r.log.Drain()
}
