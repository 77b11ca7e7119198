package session

import "time"

// A State is how the node that speaks for a session sees it.
type State uint8

// The states. Expired and Closed are final.
const (
	// Connected: the ensemble cannot have ended the session.
	Connected State = iota
	// Suspended: the ensemble may have ended it; nothing that depends on the session holds any
	// more.
	Suspended
	// Expired: the session ended against its owner's will.
	Expired
	// Closed: its owner ended the session.
	Closed
)

var stateNames = [...]string{"connected", "suspended", "expired", "closed"}

// String returns the state's name.
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return "unknown"
}

// Final reports whether the state never changes again.
func (s State) Final() bool { return s == Expired || s == Closed }

// marginMin keeps the suspension of short sessions ahead of their expiry by more than the time that
// a goroutine may wait to run.
const marginMin = 100 * time.Millisecond

// Margin returns how long before the ensemble could expire a session its owner stops trusting it: a
// tenth of the timeout, and at least 100 ms. It covers clocks whose rates are within 5 % of true
// time, or a stop up to the margin that no clock saw, but not both in full.
func Margin(timeout time.Duration) time.Duration { return max(timeout/10, marginMin) }

// A Life is the owner's view of one session, judged by the owner's clock alone. Times come from a
// clock that runs on while the machine sleeps; its zero does not matter. Until Expire or Close
// brings an end that was decided elsewhere, the state follows from the proofs and the time of the
// question: asking more often changes no answer. A Life is not safe for concurrent use.
//
// Invariants:
//  1. a final state never changes;
//  2. provedAt and floor never move back;
//  3. a question at or after the deadline is never answered with Connected.
type Life struct {
	timeout time.Duration
	// provedAt is when the newest applied batch of the node's stream was first handed to Raft.
	provedAt time.Duration
	// floor is the newest forced suspension. Batches sent before it prove nothing.
	floor time.Duration

	state State
	// since is when the present suspension began: at the deadline, or when it was forced.
	since       time.Duration
	suspensions uint64
}

// NewLife returns the life of a connected session. provedAt is when the newest batch that was
// applied on the home shard was first handed to Raft. Sending it again does not change that.
func NewLife(timeout, provedAt time.Duration) *Life {
	return &Life{timeout: timeout, provedAt: provedAt, floor: provedAt}
}

// Deadline returns the time until which the newest proof holds: the first send plus the timeout
// less Margin.
func (l *Life) Deadline() time.Duration { return l.provedAt + l.timeout - Margin(l.timeout) }

// Next returns when Look would give a new answer if nothing else happens; false in a final state.
func (l *Life) Next() (time.Duration, bool) {
	switch l.state {
	case Connected:
		return l.Deadline(), true
	case Suspended:
		return l.since + l.timeout, true
	}
	return 0, false
}

// Suspensions counts how often the session has left Connected. What was built on the session at one
// count is lost at the next, even if the session is Connected again.
func (l *Life) Suspensions() uint64 { return l.suspensions }

// State returns the state of the last look, without a look at the clock.
func (l *Life) State() State { return l.state }

// Look returns the state at now, and whether this call changed it. A Connected session is Suspended
// at its deadline, and Expired after another timeout. Both hold even if nobody looked in between.
// The node must close a session that expired here in the log; otherwise the batches of the node
// would keep it alive in the table for ever.
func (l *Life) Look(now time.Duration) (state State, changed bool) {
	if l.state == Connected && now >= l.Deadline() {
		l.suspend(l.Deadline())
		changed = true
	}
	if l.state == Suspended && now >= l.since+l.timeout {
		l.state = Expired
		changed = true
	}
	return l.state, changed
}

// Proved records that a batch first sent at sent has been applied. It looks first: a session past
// its deadline was suspended, or expired, even if nobody had asked. So changed may be true although
// the session is Connected before and after. Then a Suspended session becomes Connected again if
// its new deadline is after now. A proof that is older than the newest changes nothing.
func (l *Life) Proved(now, sent time.Duration) (state State, changed bool) {
	_, changed = l.Look(now)
	if sent = min(sent, now); l.state.Final() || sent < l.floor {
		return l.state, changed
	}
	l.provedAt = max(l.provedAt, sent)
	if l.state == Suspended && now < l.Deadline() {
		l.state = Connected
		changed = true
	}
	return l.state, changed
}

// Extend sets a newer proof without a look. It is for an owner whose many lives share one proof,
// and who knows that this life's deadline had not passed when the batch first sent at sent was
// applied. A shared proof then costs nothing per session until somebody asks. Extend does nothing
// to a session that is not Connected.
func (l *Life) Extend(sent time.Duration) {
	if l.state == Connected && sent >= l.floor {
		l.provedAt = max(l.provedAt, sent)
	}
}

// Suspend ends the trust in everything before now. The session is Suspended until a batch is
// applied that was first sent at now or later.
func (l *Life) Suspend(now time.Duration) (state State, changed bool) {
	_, changed = l.Look(now)
	l.floor = max(l.floor, now)
	if l.state == Connected {
		l.suspend(now)
		changed = true
	}
	return l.state, changed
}

// Jump looks with two clocks. The wall clock has moved by that much against this one since the
// newest applied batch was first sent. A jump of more than the Margin, in either direction, may be
// time that this clock did not see, for example because a hypervisor stopped the machine. Then a
// Connected session is Suspended, as by Suspend. Call Jump with every look, and after each Proved
// before anyone else can look.
func (l *Life) Jump(now, by time.Duration) (state State, changed bool) {
	_, changed = l.Look(now)
	if m := Margin(l.timeout); l.state == Connected && (by > m || by < -m) {
		_, changed = l.Suspend(now)
	}
	return l.state, changed
}

// Expire records that the log ended the session. It reports whether this is news.
func (l *Life) Expire() bool { return l.finish(Expired) }

// Close records that the owner ended the session. It reports whether this is news.
func (l *Life) Close() bool { return l.finish(Closed) }

func (l *Life) finish(s State) bool {
	if l.state.Final() {
		return false
	}
	if l.state == Connected {
		l.suspensions++
	}
	l.state = s
	return true
}

func (l *Life) suspend(since time.Duration) {
	l.state, l.since = Suspended, since
	l.suspensions++
}
