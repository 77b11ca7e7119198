package claim

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vivarium-go/vivarium/tree"
)

// A Life is the life of one claim, as its owner knows it. The session may hold the claim for a
// while. In the end the znodes are always deleted, or linger if they were lost and have a TTL. The
// owner is responsible for them from the moment the transaction is submitted, so a caller who loses
// patience while the outcome is unknown leaves nothing behind.
//
//	             applied                 Hold
//	submitted ─────────────▶ standing ◀──────────▶ held
//	    │                     │   ▲    Tenure.End   │
//	    │               Leave │   │ Stay            │
//	    │                     ▼   │                 │
//	    │                    leaving                │
//	    ▼                       ▼                   ▼
//	  over, from every state: failed, released, deleted, lost, or its session ended
//
// Invariants, under the owner's lock:
//  1. tenure is set exactly while the claim is held, and err exactly once it is over;
//  2. the claim has znodes while it is standing, held or leaving, and then its session lists it
//     under each of their paths;
//  3. a claim that is over never leaves that state. If its transaction is applied only then, its
//     znodes are its remains.
//
// Call Begin first. A Life must not be copied.
type Life struct {
	// Immutable after Begin.
	owner Owner
	asked []tree.Op // the creates of ephemerals, without their data

	// Guarded by the owner's lock, but for heir, which is immutable.
	paths   []string // of the znodes, once they are created
	czxid   tree.Zxid
	tenure  *Tenure // the current one
	err     error   // why the claim is over
	done    chan struct{}
	state   State
	heir    bool // it takes the place of something lost, and is lost itself until it is held
	wasHeld bool // it is held, or was
	again   bool // the newest Hold allowed others after it
}

// An Owner is the clock of a claim's session, its lock, and what it is told.
type Owner interface {
	// LookAndLock compares the clock, ends what the clock ends, and locks all claims of the session.
	LookAndLock()
	Unlock()
	// Ready returns why the claim cannot be held yet, or now: its outcome is not known, or its
	// session is not safe. It is asked under the lock.
	Ready() error
	// Stepped is called under the lock when the claim has made a step from a state, with why a
	// tenure or the claim ends.
	Stepped(from State, why error)
	// Defect is called under the lock if the claim makes a step that Life does not draw.
	Defect(what string)
}

// A State is where a claim is in its life.
type State uint8

// The states of a claim.
const (
	Submitted State = iota // its transaction has no outcome here yet
	Standing               // its znodes stand in their queues
	Held                   // a tenure lasts
	Leaving                // a transaction of its owner that deletes its znodes is on its way
	Over                   // ended here; its znodes may still exist
)

// String returns the state's name.
func (s State) String() string {
	return [...]string{"submitted", "standing", "held", "leaving", "over"}[s]
}

// steps has for each state the states that may follow.
var steps = [...][]State{
	Submitted: {Standing, Over},
	Standing:  {Held, Leaving, Over},
	Held:      {Standing, Over},
	Leaving:   {Standing, Over},
	Over:      nil,
}

// Remains are znodes that a claim leaves behind. Its owner ends them. They are of no use if its
// session ends, which ends them too. The zero value is none.
type Remains struct {
	Paths []string
	Czxid tree.Zxid
	Lost  bool // they linger if they can
}

// Begin begins the life of a claim whose transaction is about to be submitted. An heir takes the
// place of something lost, whose owner may still have a call on its way. So an heir lingers in the
// same way when it ends, until it has been held: only then is it certain that the call has arrived.
func (l *Life) Begin(owner Owner, ops []tree.Op, heir bool) {
	l.owner, l.heir, l.done = owner, heir, make(chan struct{})
	for _, op := range ops {
		if op.Kind == tree.KindCreate && op.Mode.IsEphemeral() {
			l.asked = append(l.asked, tree.Op{Path: op.Path, Mode: op.Mode})
		}
	}
}

// goToLocked moves the claim to its next state. A step that Life does not draw is a defect of this
// library. It must not take down the process, which belongs to the service: the owner is told, and
// the claim takes the step, but a claim that is over stays over.
func (l *Life) goToLocked(next State, why error) {
	if !slices.Contains(steps[l.state], next) {
		l.owner.Defect(fmt.Sprintf("a claim goes from %v to %v", l.state, next))
		if l.state == Over {
			return
		}
	}
	from := l.state
	l.state = next
	l.owner.Stepped(from, why)
}

// AppliedLocked records the results of the claim's transaction, by a session that has ended with
// end if that is not nil. It returns the znodes if the claim was over before.
func (l *Life) AppliedLocked(results []tree.Result, by tree.SessionID, end error) Remains {
	for _, r := range results {
		if r.Kind == tree.KindCreate && r.Stat.EphemeralOwner == by {
			l.paths, l.czxid = append(l.paths, r.Path), r.Stat.Czxid
		}
	}
	if end != nil {
		l.FinishLocked(end)
	}
	if l.state == Over {
		return l.remainsLocked()
	}
	l.goToLocked(Standing, nil)
	return Remains{}
}

func (l *Life) remainsLocked() Remains { return Remains{l.paths, l.czxid, l.LingersLocked()} }

// Hold begins a tenure. The tenure lasts until the session's local deadline, the end of the session
// or of the claim, or Tenure.End.
//
// Hold fails if the claim has ended, if its owner is not ready, or if the claim is held or was. With
// again at every Hold, the claim may be held again after each tenure has ended.
func (l *Life) Hold(again bool) (*Tenure, error) {
	l.owner.LookAndLock()
	defer l.owner.Unlock()
	if l.state == Over {
		return nil, l.err
	}
	if err := l.owner.Ready(); err != nil {
		return nil, err
	}
	if l.state != Standing || l.wasHeld && !(again && l.again) {
		return nil, fmt.Errorf("%w: it is held already, or was", tree.ErrNotHeld)
	}
	l.goToLocked(Held, nil)
	l.wasHeld, l.again = true, again
	l.tenure = &Tenure{life: l}
	return l.tenure, nil
}

// Done compares the clock and returns a channel that is closed when the claim has ended.
func (l *Life) Done() <-chan struct{} {
	l.owner.LookAndLock()
	defer l.owner.Unlock()
	return l.done
}

// Err compares the clock and returns why the claim ended, or nil while it has not.
func (l *Life) Err() error {
	l.owner.LookAndLock()
	defer l.owner.Unlock()
	return l.err
}

// Leave prepares for a transaction of the claim's session that deletes the znodes, and returns the
// operations that do so. The tenure ends now, whatever the transaction's outcome: others may see
// the znodes gone before the owner does.
func (l *Life) Leave() ([]tree.Op, error) {
	l.owner.LookAndLock()
	defer l.owner.Unlock()
	switch l.state {
	case Over:
		return nil, notHeld(l.err)
	case Submitted, Leaving:
		return nil, fmt.Errorf("%w: a claim is given up once, when its znodes are there", tree.ErrNotHeld)
	}
	if l.tenure != nil {
		l.tenure.endLocked(ErrReleased)
	}
	l.goToLocked(Leaving, nil)
	return l.OpsLocked(tree.KindDelete), nil
}

// StayLocked records that the transaction failed, or was never sent, that was to delete the znodes.
// If the claim is over, somebody deleted one of them, or the owner gave the claim up meanwhile. Then
// StayLocked returns them.
func (l *Life) StayLocked() Remains {
	switch l.state {
	case Leaving:
		l.goToLocked(Standing, nil)
	case Over:
		return l.remainsLocked()
	}
	return Remains{}
}

// OpsLocked returns operations about the claim's znodes, for KindGuard or KindDelete.
func (l *Life) OpsLocked(kind tree.OpKind) []tree.Op {
	ops := make([]tree.Op, len(l.paths))
	for i, path := range l.paths {
		ops[i] = tree.Op{Kind: kind, Path: path, Czxid: l.czxid}
		if kind == tree.KindDelete {
			ops[i].Version = tree.AnyVersion
		}
	}
	return ops
}

// GoneLocked ends the claim because one of its znodes is gone, or is about to be. It returns the
// others: a claim ends as a whole. Those of a claim that leaves go with it.
func (l *Life) GoneLocked(path string) Remains {
	switch l.state {
	case Over:
		return Remains{}
	case Leaving:
		l.FinishLocked(ErrReleased)
		return Remains{}
	}
	l.FinishLocked(ErrDeleted)
	r := l.remainsLocked()
	r.Paths = slices.DeleteFunc(slices.Clone(r.Paths), func(p string) bool { return p == path })
	return r
}

// SuspendedLocked ends the claim if it is held or was, because its session is not safe.
func (l *Life) SuspendedLocked() (r Remains, ended bool) {
	if !l.wasHeld || l.state == Over {
		return Remains{}, false
	}
	held := l.state == Held
	r = l.EndLocked(ErrSuspended)
	r.Lost = r.Lost || held
	return r, true
}

// EndLocked ends the claim, and returns its znodes if it has any by now.
func (l *Life) EndLocked(why error) Remains {
	if l.state == Over {
		return Remains{}
	}
	l.FinishLocked(why)
	return l.remainsLocked()
}

// FinishLocked ends the claim for a reason by which it has no remains: its transaction failed, or
// its session ended.
func (l *Life) FinishLocked(why error) {
	if l.state == Over {
		return
	}
	l.goToLocked(Over, why)
	l.err = why
	close(l.done)
	if l.tenure != nil {
		l.tenure.endLocked(why)
	}
}

// StateLocked returns the claim's state.
func (l *Life) StateLocked() State { return l.state }

// WasHeldLocked reports whether the claim is held, or was.
func (l *Life) WasHeldLocked() bool { return l.wasHeld }

// LingersLocked reports whether the claim's znodes linger when it ends, even if its owner gives it
// up.
func (l *Life) LingersLocked() bool { return l.heir && !l.wasHeld }

// ZnodesLocked returns the claim's znodes: their paths and the transaction that created them.
func (l *Life) ZnodesLocked() ([]string, tree.Zxid) { return l.paths, l.czxid }

// Asked returns the creates of the claim's ephemerals, without their data. Nobody may change it.
func (l *Life) Asked() []tree.Op { return l.asked }

// MayBe reports whether a create may have created path.
func MayBe(create *tree.Op, path string) bool {
	if create.Mode != tree.EphemeralSequential {
		return path == create.Path
	}
	suffix, ok := strings.CutPrefix(path, create.Path)
	return ok && len(suffix) == 10 && strings.Trim(suffix, "0123456789") == ""
}

// VerifyLocked returns an error if an invariant of Life does not hold, or if the claim is not to be
// listed under path.
func (l *Life) VerifyLocked(path string) error {
	live := l.state == Standing || l.state == Held || l.state == Leaving
	if !live || l.err != nil || (l.tenure != nil) != (l.state == Held) || l.tenure != nil && !l.wasHeld || !slices.Contains(l.paths, path) {
		return fmt.Errorf("a claim of %q, listed as %s, is %v, with tenure %v, held once %v, and error %v", l.paths, path, l.state, l.tenure != nil, l.wasHeld, l.err)
	}
	return nil
}
