package keeper

import (
	"time"

	"github.com/vivarium-go/vivarium/internal/meter"
	"github.com/vivarium-go/vivarium/session"
)

// Meters count what happens to the sessions of a node.
type Meters struct {
	// Suspensions of in-process sessions: because the node was silent, or because its clocks jumped.
	Silences, Jumps meter.Counter
	Ends            [EndCauses]meter.Counter  // of all sessions
	Losses          [LossCauses]meter.Counter // of what was held
	// Queued are the callers in this process that wait behind one another for a claim which is held
	// again and again. They have no claims of their own.
	Queued meter.Gauge
}

// A ClaimKind is what a claim is for, as far as the metrics tell.
type ClaimKind uint8

// The kinds. The zero value is that of a claim whose maker does not say.
const (
	ClaimOther ClaimKind = iota
	ClaimMutex
	ClaimRead
	ClaimWrite
	ClaimSemaphore
	ClaimElection
	ClaimTask
	ClaimKinds // how many there are
)

// String returns the kind as the metrics name it.
func (k ClaimKind) String() string {
	return [...]string{"other", "mutex", "read", "write", "semaphore", "election", "task"}[k]
}

// Queues reports whether a claim of the kind that was never held waits for others to go. Claims of
// other kinds may stand without ever being held, such as that of a group's member.
func (k ClaimKind) Queues() bool { return ClaimMutex <= k && k <= ClaimElection }

// ClaimCounts count claims by their kind.
type ClaimCounts struct {
	Held     [ClaimKinds]int
	Standing [ClaimKinds]int // never held yet, with znodes that exist
}

// An EndCause is why a session ended on this node.
type EndCause int

// The causes.
const (
	EndClosed  EndCause = iota // by its owner
	EndExpired                 // by the log, or by the clock
	EndMoved                   // its client attached it elsewhere, or anew
	EndNode                    // the node failed or was closed
	EndCauses                  // how many there are
)

// String returns the cause as the metrics name it.
func (c EndCause) String() string { return [...]string{"closed", "expired", "moved", "node"}[c] }

func (m *Meters) noteEnd(why error) {
	switch why {
	case session.ErrClosed:
		m.Ends[EndClosed].Inc()
	case session.ErrExpired:
		m.Ends[EndExpired].Inc()
	case session.ErrMoved:
		m.Ends[EndMoved].Inc()
	default:
		m.Ends[EndNode].Inc()
	}
}

// A LossCause is why something that was held was lost.
type LossCause int

// The causes.
const (
	LossSuspended LossCause = iota // its session was suspended
	LossExpired                    // its session expired
	LossDeleted                    // somebody deleted its znode
	LossNode                       // the node failed or was closed
	LossCauses                     // how many there are
)

// String returns the cause as the metrics name it.
func (c LossCause) String() string {
	return [...]string{"suspended", "expired", "deleted", "node"}[c]
}

// noteLoss counts the end of a tenure, unless its owner gave it up.
func (m *Meters) noteLoss(why error) {
	switch why {
	case ErrReleased, session.ErrClosed:
	case ErrSuspended:
		m.Losses[LossSuspended].Inc()
	case session.ErrExpired:
		m.Losses[LossExpired].Inc()
	case ErrDeleted:
		m.Losses[LossDeleted].Inc()
	default:
		m.Losses[LossNode].Inc()
	}
}

func (m *Meters) noteSuspension(jump bool) {
	if jump {
		m.Jumps.Inc()
	} else {
		m.Silences.Inc()
	}
}

// Figures are the sessions and holds of a node.
type Figures struct {
	Sessions, Remote int // in-process ones, and those of clients
	Suspended        int // of both
	Claims           ClaimCounts
	// Margin is the time until the first in-process session is past its local deadline. Without a
	// session there is none.
	Margin    time.Duration
	HasMargin bool
}

// TryFigures returns the figures, and false if the keeper is busy at this moment.
func (k *Keeper) TryFigures() (f Figures, ok bool) {
	now := k.clock.Boot()
	if !k.mu.TryLock() {
		return f, false
	}
	defer k.mu.Unlock()
	f = Figures{
		Sessions: len(k.mu.sessions), Remote: len(k.mu.remotes.byID),
		Suspended: len(k.mu.suspended), Claims: k.mu.claims,
	}
	for _, c := range k.mu.remotes.classes {
		if c.suspended {
			f.Suspended += len(c.list)
		}
	}
	if least := k.mu.timeouts.least; least > 0 {
		f.Margin, f.HasMargin = k.mu.provedAt+least-session.Margin(least)-now, true
	}
	return f, true
}
