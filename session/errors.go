package session

import "errors"

// How a session ends for its owner.
var (
	// ErrExpired: the session was silent for its timeout. It is also the answer for a session that
	// is unknown, due or closing, whatever ended it.
	ErrExpired = errors.New("session expired")
	// ErrClosed: the owner closed the session.
	ErrClosed = errors.New("session closed")
	// ErrMoved: the remote client has reattached the session through another connection, here or at
	// another member. The session goes on there.
	ErrMoved = errors.New("session moved to another connection")
)

// What a Table refuses, for errors.Is. Errors that wrap them name the values.
var (
	// ErrOlderStart refuses a Register whose start is not greater than the registered one. It comes
	// from an older copy of the directory, or is a late copy of an earlier Register.
	ErrOlderStart = errors.New("start is not greater than the registered one")
	// ErrOtherDirectory refuses a Register from another directory than the member's first one.
	ErrOtherDirectory = errors.New("directory is not the registered one")
	// ErrOtherFounding refuses a Register from a member of another ensemble.
	ErrOtherFounding = errors.New("founding digest is not the ensemble's")
	// ErrUnregistered refuses a session at an origin that has not registered.
	ErrUnregistered = errors.New("origin is not registered")
	// ErrSilent refuses a session at an origin that has not just been heard. Only an accepted batch
	// of the origin opens sessions, and it ends every silence.
	ErrSilent = errors.New("origin has not been heard")
	// ErrSessionExists refuses a session id that is in use.
	ErrSessionExists = errors.New("session exists")
	// ErrInvalidTimeout refuses a session timeout that is not positive.
	ErrInvalidTimeout = errors.New("session timeout is not positive")
	// ErrInvalidID refuses the session id zero, which means "none".
	ErrInvalidID = errors.New("session id is zero")
	// ErrAttachedElsewhere is the answer for a session that another origin speaks for, or the same
	// origin after another attachment.
	ErrAttachedElsewhere = errors.New("session is attached elsewhere")
	// ErrNotRemote refuses to attach an in-process session.
	ErrNotRemote = errors.New("session is in-process")
	// ErrWrongPassword refuses to attach a session for a client that does not know its password.
	ErrWrongPassword = errors.New("session password is wrong")
	// ErrNotFounded refuses a candidate of an ensemble that has no lineage yet.
	ErrNotFounded = errors.New("the ensemble has no lineage yet")
	// ErrNotMember refuses a Register of a member that the ensemble does not have.
	ErrNotMember = errors.New("the ensemble has no such member")
	// ErrDismissed refuses a Register of a member that is out, and a candidate with its directory.
	ErrDismissed = errors.New("the member is out")
	// ErrRetired refuses what a member asks after Retire.
	ErrRetired = errors.New("the member is out, and its stream has ended")
	// ErrOutdated refuses a wish that does not have the number of the newest leader.
	ErrOutdated = errors.New("the wish is that of a former leader")
	// ErrBackward refuses a wish that would take a member back to what it was. It also refuses a wish
	// to be out without a reason, and any other wish with one.
	ErrBackward = errors.New("a member goes from learner to voter to out, and never back")
	// ErrObserver refuses to let an observer vote.
	ErrObserver = errors.New("an observer does not vote")
	// ErrLastVoter refuses to take out the last member that is to vote.
	ErrLastVoter = errors.New("no other member is to vote")
	// ErrFull refuses a candidate of an ensemble with MembersMax members.
	ErrFull = errors.New("the ensemble has as many members as it can have")
	// ErrNameTaken refuses a candidate under the name of a member that it is not to replace.
	ErrNameTaken = errors.New("the name is taken")
	// ErrCorrupt reports a table that no sequence of calls could have made.
	ErrCorrupt = errors.New("session table is corrupt")
)
