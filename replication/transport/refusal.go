package transport

import (
	"errors"
	"fmt"
	"log/slog"
)

// Kinds of refusal. Test for them with errors.Is on a *Refusal.
var (
	ErrOtherVersion  = errors.New("other protocol version")
	ErrOtherEnsemble = errors.New("other ensemble")
	ErrNotMember     = errors.New("not a member")
	ErrWrongMember   = errors.New("another member answers at this address")
	ErrNotAccepted   = errors.New("not accepted")
	ErrForgot        = errors.New("has forgotten what it acknowledged")
	ErrOtherTick     = errors.New("other tick")
	ErrOtherHistory  = errors.New("other history")
	ErrOtherLevel    = errors.New("other level")
	ErrOtherLineage  = errors.New("other lineage")
	ErrRemoved       = errors.New("removed")
	ErrSuperseded    = errors.New("superseded")
)

// refusalKinds lists the kinds as they travel. The code of a kind is its place in the list.
var refusalKinds = [...]error{1: ErrOtherVersion, 2: ErrOtherEnsemble, 3: ErrNotMember, 4: ErrWrongMember, 5: ErrNotAccepted,
	6: ErrForgot, 7: ErrOtherTick, 8: ErrOtherHistory, 9: ErrOtherLevel, 10: ErrOtherLineage, 11: ErrRemoved, 12: ErrSuperseded}

// A Refusal says why one member does not talk to another. It wraps one of the kinds above.
type Refusal struct {
	Kind error  // one of the kinds of refusal
	Text string // the reason, for people
}

// Error returns the reason.
func (r *Refusal) Error() string { return r.Text }

// Unwrap returns the kind.
func (r *Refusal) Unwrap() error { return r.Kind }

// Final reports whether the refusal is about the member's directory: what it holds, that its member
// was removed, or that a forced recovery has ended its lineage. No restart and no other config
// changes that.
func (r *Refusal) Final() bool {
	switch r.Kind {
	case ErrNotAccepted, ErrForgot, ErrOtherHistory, ErrRemoved, ErrSuperseded:
		return true
	}
	return false
}

// level returns the level at which a refusal is logged. If acknowledged writes are in danger,
// somebody has to act.
func (r *Refusal) level() slog.Level {
	if r.Kind == ErrForgot || r.Kind == ErrOtherHistory {
		return slog.LevelError
	}
	return slog.LevelWarn
}

func refusal(kind error, format string, args ...any) *Refusal {
	return &Refusal{Kind: kind, Text: fmt.Sprintf(format, args...)}
}

// notAccepted is the code of ErrNotAccepted. It stands for every kind that has no code.
const notAccepted = 5

// code returns the kind as it travels. A build takes a code that it does not know for notAccepted,
// and stops for good.
func (r *Refusal) code() uint16 {
	for i, k := range refusalKinds {
		if k != nil && r.Kind == k {
			return uint16(i)
		}
	}
	return notAccepted
}

// A refusedError says that the peer refused this member.
type refusedError struct {
	peer   uint64
	reason *Refusal
}

func (e *refusedError) Error() string {
	return fmt.Sprintf("member %d refuses this one: %s", e.peer, e.reason.Text)
}

func (e *refusedError) Unwrap() error { return e.reason }

// refusedBy calls Options.Refused if err is the peer's refusal.
func (t *Transport) refusedBy(peer uint64, err error) error {
	no, ok := err.(*Refusal)
	if !ok {
		return err
	}
	if t.o.Refused != nil {
		t.o.Refused(t.ctx, peer, no)
	}
	return &refusedError{peer: peer, reason: no}
}
