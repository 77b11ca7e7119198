package transport

import "errors"

// Kinds of refusal, to be tested with errors.Is on a *Refusal.
var (
	ErrOtherVersion  = errors.New("other protocol version")
	ErrOtherEnsemble = errors.New("other ensemble")
	ErrNotMember     = errors.New("not a member")
	ErrWrongMember   = errors.New("another member answers at this address")
	ErrNotAdmitted   = errors.New("not admitted")
)

// A Refusal says why one member does not talk to another. It wraps one of the errors above.
type Refusal struct {
	Kind error  // one of the kinds of refusal
	Text string // the reason, for people
}

// Error returns the reason.
func (r *Refusal) Error() string { return r.Text }

// Unwrap returns the kind.
func (r *Refusal) Unwrap() error { return r.Kind }
