package replica

import (
	"io"
	"time"

	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/storage"
	"github.com/vivarium-go/vivarium/tree"
)

// accept returns why this member cannot go on from a state that has a record, or nil.
func (r *Replica) accept(t storage.Table, _, value []byte) error {
	if t != storage.Meta {
		return nil
	}
	state, err := command.DecodeState(value, r.levelMax())
	if err == nil {
		_, err = pickSchemes(r.schemes, state.Rules.Schemes)
	}
	return err
}

// Install implements replication.StateMachine. It replaces the state by a received one. This node
// has not seen the transactions in between. Its calls, sessions, claims and watches learn what that
// means for them before a reader can see the new state. What promises that the new state can be
// seen comes after that: the outcome of an end, and the index.
func (r *Replica) Install(from io.Reader, stop <-chan struct{}) error {
	began := time.Now()
	r.turn <- struct{}{}
	defer r.endTurn()
	r.Meters.Installing.Begin()
	defer r.Meters.Installing.End()
	if err := r.image.Install(from, stop, r.accept); err != nil {
		return err
	}
	received, err := loadImage(r.image, r.schemes, r.levelMax())
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.auditGap(r.mu.Zxid, received.state.Zxid)
	raised := received.state.Level > r.Level()
	r.use(received)
	if raised {
		r.node.Raised(r.Shard, received.state.Level, nil)
	}
	r.unsaved.entries, r.unsaved.bytes = 0, 0
	r.restartClocks()
	finish := func() {}
	o, registered := received.table.Origin(r.Outbox.Origin.Member)
	if registered = registered && o.Start == r.Outbox.Origin.Start; registered {
		finish = r.Outbox.SkipTo(o.LastSeq)
	}
	gap := gap{old: r.tree.Load(), next: received.tree, compared: make(map[string]comparison)}
	r.node.Reconcile(r.Shard, gap.old, gap.next, received.table, registered)
	r.Watches.Install(received.state.Zxid, gap.touched, swap{r, gap.next})
	r.index.Store(r.image.Applied())
	finish()
	r.Meters.Installs.Observe(time.Since(began))
	return nil
}

// A swap publishes a received tree. Meanwhile all readers wait, because any znode may differ.
type swap struct {
	*Replica
	next *tree.Tree
}

func (s swap) Announce() { s.swapping.Store(true) }

func (s swap) Newest(path string) (tree.Found, bool) { return s.next.Newest(path) }

func (s swap) Publish() {
	s.tree.Store(s.next)
	s.swapping.Store(false)
}
