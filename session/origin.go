package session

import (
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/vivarium-go/vivarium/tree"
)

// A MemberID identifies a member of the ensemble. Zero means no member.
type MemberID uint64

// An Origin is a member's stream of batches, as the log has it: which incarnation speaks, how far
// its stream has come, and how long it has been silent since. All of it is replicated and stored.
type Origin struct {
	Member MemberID
	// Start counts the incarnations of the member's directory.
	Start uint64
	// Directory is the id of the directory that registered first. No other may speak for the
	// member.
	Directory [16]byte
	// Digest is the founding digest, the same for all origins of a table.
	Digest [32]byte
	// Level is the highest feature level that the member agrees to.
	Level uint32
	// Schemes are the ACL schemes that the member has. The engine sets them from the feature level
	// on that records them.
	Schemes []string
	// Retired says that the stream has ended for ever. The member may never have registered.
	Retired bool
	// LastSeq is the newest accepted batch; zero means none since the Register.
	LastSeq uint64
	// Steps is how many steps of silence were recorded since LastSeq, and Silence is their sum.
	Steps   uint64
	Silence time.Duration
}

// A Verdict says what the table did with a batch.
type Verdict uint8

// The verdicts. All but Accepted leave the table as it was.
const (
	// Accepted: the batch is the next of its stream.
	Accepted Verdict = iota
	// Repeat: the batch was accepted before.
	Repeat
	// Gap: a batch before this one is missing.
	Gap
	// Unregistered: this incarnation has not registered.
	Unregistered
	// Retired: a later incarnation of the member has registered, or the member is out.
	Retired
)

var verdictNames = [...]string{"accepted", "repeat", "gap", "unregistered", "retired"}

// String returns the verdict's name.
func (v Verdict) String() string {
	if int(v) < len(verdictNames) {
		return verdictNames[v]
	}
	return fmt.Sprintf("verdict %d", uint8(v))
}

// origin is an Origin with the sessions it speaks for, except those that are Closing.
type origin struct {
	Origin
	// classes holds live and due classes by their timeout. No class is empty.
	classes map[time.Duration]*class
	// live is a heap by timeout; due has no order.
	live []*class
	due  []*class
	// purged holds the sessions in Table.ended without Shards that the member may still ask for,
	// and the transactions in which they ended.
	purged map[tree.SessionID]tree.Zxid
}

// Register begins the stream of a new incarnation and retires the member's earlier one for good.
// The earlier one's batches and silences are refused from now on. Its in-process sessions become
// Closing, and so do its due sessions. Register returns their ids in order. The caller closes them,
// at once or in portions; Due goes on naming them. Remote sessions go on, and the new incarnation
// speaks for them.
//
// A refused Register changes nothing. Register returns ErrOtherFounding, ErrOtherDirectory or
// ErrOlderStart, checked in this order and wrapped with both values.
func (t *Table) Register(n Origin) ([]tree.SessionID, error) {
	if err := t.checkRegister(n); err != nil {
		return nil, err
	}
	o := t.ensure(n.Member)
	n.LastSeq, n.Steps, n.Silence = 0, 0, 0
	o.Origin = n
	t.dirtyOrigins[n.Member] = struct{}{}

	var ended []tree.SessionID
	var stay []*entry
	for _, c := range o.classes {
		for _, e := range c.members {
			if e.attached() != 0 && !c.due {
				stay = append(stay, e)
				continue
			}
			t.markClosing(e)
			ended = append(ended, e.id)
		}
		c.members = nil
	}
	o.classes, o.live, o.due = make(map[time.Duration]*class), nil, nil
	for _, e := range stay {
		o.add(e, e.class.timeout)
	}
	for id := range o.purged {
		if t.isRetired(t.ended[id].of(n.Member)) {
			t.acknowledge(id, n.Member)
		}
	}
	slices.Sort(ended)
	return ended, nil
}

// Retire ends a member's stream for ever: its batches and its Register are refused. No record of an
// ended session waits for the member from then on. Its sessions stay. Remote clients may come to
// another member, and the silence since the last batch ends the other sessions.
//
// A retired origin is never removed, so that a late copy of a Register begins no new stream. It is
// small, and there is one for each member that has ever gone.
func (t *Table) Retire(m MemberID) {
	if m == 0 || t.IsRetired(m) {
		return
	}
	o := t.ensure(m)
	o.Retired = true
	t.departed(o)
	t.dirtyOrigins[m] = struct{}{}
	for id := range o.purged {
		t.acknowledge(id, m)
	}
}

// IsRetired reports whether Retire has ended a member's stream.
func (t *Table) IsRetired(m MemberID) bool {
	o, ok := t.origins[m]
	return ok && o.Retired
}

// Speaks reports whether a member is the origin of any session, also of one that is due or closing.
func (t *Table) Speaks(m MemberID) bool {
	if o, ok := t.origins[m]; ok && len(o.classes) > 0 {
		return true
	}
	for _, e := range t.closing {
		if e.class.origin == m {
			return true
		}
	}
	return false
}

// Doom makes the in-process sessions of a member Closing, because it is known that the process is
// over and that no other will speak for the member. Remote sessions go on: their clients may come
// to another member until the silence ends them.
func (t *Table) Doom(m MemberID) {
	o, ok := t.origins[m]
	if !ok {
		return
	}
	for _, c := range o.classes {
		for _, e := range slices.Clone(c.members) {
			if e.attached() == 0 && !c.due {
				o.remove(e)
				t.markClosing(e)
			}
		}
	}
}

// checkRegister returns why a Register is refused, or nil.
func (t *Table) checkRegister(n Origin) error {
	if o := t.anyRegistered(); o != nil && o.Digest != n.Digest {
		return fmt.Errorf("member %d: %w: %x, not %x", n.Member, ErrOtherFounding, n.Digest, o.Digest)
	}
	var recorded Origin
	if o, ok := t.origins[n.Member]; ok {
		recorded = o.Origin
	}
	if recorded.Retired {
		return fmt.Errorf("member %d: %w", n.Member, ErrRetired)
	}
	if recorded.Start > 0 && recorded.Directory != n.Directory {
		return fmt.Errorf("member %d: %w: %x, not %x",
			n.Member, ErrOtherDirectory, n.Directory, recorded.Directory)
	}
	if n.Start <= recorded.Start {
		return fmt.Errorf("member %d: %w: %d, not above %d", n.Member, ErrOlderStart, n.Start, recorded.Start)
	}
	return nil
}

// anyRegistered returns a registered origin, or nil. All of them have the same digest.
func (t *Table) anyRegistered() *origin {
	for _, o := range t.origins {
		if o.Start > 0 {
			return o
		}
	}
	return nil
}

func (t *Table) ensure(m MemberID) *origin {
	o, ok := t.origins[m]
	if !ok {
		o = &origin{Origin: Origin{Member: m}, classes: make(map[time.Duration]*class), purged: make(map[tree.SessionID]tree.Zxid)}
		t.origins[m], t.present[m] = o, o
	}
	return o
}

// Accept judges a batch by its place in its stream. An Accepted batch counts even if all its
// requests will fail. It ends the origin's silence, but sessions that were due before it stay due.
func (t *Table) Accept(m MemberID, start, seq uint64) Verdict {
	o, ok := t.origins[m]
	switch {
	case ok && o.Retired:
		return Retired
	case !ok || o.Start == 0 || start > o.Start:
		return Unregistered
	case start < o.Start:
		return Retired
	case seq <= o.LastSeq:
		return Repeat
	case seq != o.LastSeq+1:
		return Gap
	}
	for _, c := range o.due {
		delete(o.classes, c.timeout)
		for _, e := range c.members {
			t.markClosing(e)
		}
		c.members = nil
	}
	o.due = nil
	o.LastSeq, o.Steps, o.Silence = seq, 0, 0
	t.dirtyOrigins[m] = struct{}{}
	return Accepted
}

// A Step names one step of one silence: the incarnation that is silent, its newest accepted batch,
// and the number of the step after that batch. So a measurement is good for one place in the log
// and no other. Equal Steps are the same step.
type Step struct {
	Member  MemberID
	Start   uint64
	LastSeq uint64
	Number  uint64 // counts from 1 after LastSeq
}

// Silence records a step of an origin's silence: some replica waited for d after the step before
// (or after the batch, for the first step), and the origin committed nothing. The step counts, and
// Silence returns true, only if s is the step that NextStep names now. Repeats, late arrivals and
// second measurements change nothing.
//
// At most a quarter of the smallest timeout of the live sessions counts, whatever d says. An origin
// without live sessions has nothing to lose, so no silence is recorded for it.
func (t *Table) Silence(s Step, d time.Duration) bool {
	next, _, ok := t.NextStep(s.Member)
	if !ok || s != next || d <= 0 {
		return false
	}
	o := t.origins[s.Member]
	o.Steps = s.Number
	o.Silence += min(d, quarter(o.live[0].timeout))
	o.markDue()
	t.dirtyOrigins[s.Member] = struct{}{}
	return true
}

// NextSteps yields NextStep of all origins that have one, by member.
func (t *Table) NextSteps() iter.Seq2[Step, time.Duration] {
	return func(yield func(Step, time.Duration) bool) {
		for _, o := range t.Present() {
			if s, d, ok := t.NextStep(o.Member); ok && !yield(s, d) {
				return
			}
		}
	}
}

// NextStep tells a shard leader which step of an origin's silence to measure next, and for how
// long. That is a quarter of the smallest timeout of the live sessions, cut so that the silence
// lands exactly on that timeout. If the origin has no live session, there is nothing to measure and
// ok is false.
//
// The leader measures from the moment when its own replica applied, or loaded, the entry after
// which this was the next step. It proposes Silence(s, d) once it has measured d.
func (t *Table) NextStep(m MemberID) (s Step, d time.Duration, ok bool) {
	o, found := t.origins[m]
	if !found || len(o.live) == 0 {
		return Step{}, 0, false
	}
	next := o.live[0].timeout // above the silence, or the class were due
	s = Step{Member: m, Start: o.Start, LastSeq: o.LastSeq, Number: o.Steps + 1}
	return s, min(quarter(next), next-o.Silence), true
}

// MinTimeout returns the smallest timeout of the live sessions at an origin, those that are neither
// due nor closing; false if there are none.
func (t *Table) MinTimeout(m MemberID) (time.Duration, bool) {
	o, ok := t.origins[m]
	if !ok || len(o.live) == 0 {
		return 0, false
	}
	return o.live[0].timeout, true
}

// quarter returns a fourth of a timeout. It rounds up, so that four quarters reach the timeout.
func quarter(timeout time.Duration) time.Duration { return (timeout-1)/4 + 1 }
