package session

import "time"

// State is where a session stands in the eyes of the node that speaks for it.
type State uint8

// The states. Expired and Closed are final.
const (
	// Connected: the ensemble cannot have given the session up.
	Connected State = iota
	// Suspended: it may have; nothing that depends on the session holds any more.
	Suspended
	// Expired: the session ended against its owner's will.
	Expired
	// Closed: its owner ended it.
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

// marginMin keeps short sessions apart from their expiry by more than a goroutine's wait for its turn.
const marginMin = 100 * time.Millisecond

// Margin is how long before the ensemble could expire a session its owner stops trusting it: a tenth of
// the timeout, at least 100 ms. It covers clocks whose rates differ by less than 5 %.
func Margin(timeout time.Duration) time.Duration { return max(timeout/10, marginMin) }

// A Life is the owner's view of one session, judged by the owner's clock alone. Times are read from a
// clock that runs on while the machine sleeps, from any fixed zero. Until the end is decided elsewhere
// (Expire, Close), the state follows from the proofs and the time asked about: asking more often changes
// no answer. Not safe for concurrent use.
//
// Invariants:
//  1. a final state never changes;
//  2. proved and floor never move back;
//  3. whoever asks at or after the deadline is not told Connected.
type Life struct {
	timeout time.Duration
	// proved is when the newest applied batch of the node's stream was first handed to Raft.
	proved time.Duration
	// floor is the newest forced suspension: batches sent before it prove nothing.
	floor time.Duration

	state State
	// since is when the present suspension began: the deadline, or a forced one's moment.
	since       time.Duration
	suspensions uint64
}

// NewLife returns a connected session's life. proved is when the newest applied batch of the node's
// stream on shard 1 was handed to Raft for the first time; a resend does not move it.
func NewLife(timeout, proved time.Duration) *Life {
	return &Life{timeout: timeout, proved: proved, floor: proved}
}

// Deadline is the time until which the newest proof holds: the first send plus timeout less Margin.
func (l *Life) Deadline() time.Duration { return l.proved + l.timeout - Margin(l.timeout) }

// Next is when Look would answer something new if nothing else happens; false in a final state.
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
// count is lost at the next, also if the session is Connected again.
func (l *Life) Suspensions() uint64 { return l.suspensions }

// State returns the state as it was last looked at, without a look at the clock.
func (l *Life) State() State { return l.state }

// Look returns the state at now, and whether this call changed it. A Connected session is Suspended at
// its deadline, and Expired after another timeout, both also if nobody looked in between. The node must
// close a session that expired here in the log, or its own life would keep it there for ever.
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

// Proved tells that a batch first sent at sent has been applied. It looks first: a session past its
// deadline was suspended, or expired, whether anybody had asked or not, and changed says so even if the
// session is Connected before and after. Then a Suspended session whose new deadline is ahead of now is
// Connected again. A proof that is older than the newest changes nothing.
func (l *Life) Proved(now, sent time.Duration) (state State, changed bool) {
	_, changed = l.Look(now)
	if sent = min(sent, now); l.state.Final() || sent < l.floor {
		return l.state, changed
	}
	l.proved = max(l.proved, sent)
	if l.state == Suspended && now < l.Deadline() {
		l.state = Connected
		changed = true
	}
	return l.state, changed
}

// Extend moves the proof without a look. It is for the owner of many lives who shares one proof among
// them and knows that this one's deadline had not passed when the batch first sent at sent was applied:
// moving the proof then costs nothing per session until somebody asks. A session that is not Connected
// is left as it is.
func (l *Life) Extend(sent time.Duration) {
	if l.state == Connected && sent >= l.floor {
		l.proved = max(l.proved, sent)
	}
}

// Suspend ends the trust in everything before now: the session is Suspended until a batch is applied
// that was first sent at now or later.
func (l *Life) Suspend(now time.Duration) (state State, changed bool) {
	_, changed = l.Look(now)
	l.floor = max(l.floor, now)
	if l.state == Connected {
		l.suspend(now)
		changed = true
	}
	return l.state, changed
}

// Jump looks with two clocks: the wall clock has moved by that much against this one since the newest
// applied batch was first sent. More than the Margin, in either direction, may be time that this clock did
// not see, as when a hypervisor stops a machine: a Connected session is Suspended, as by Suspend. Ask
// with every look, and after Proved before anyone else can look.
func (l *Life) Jump(now, by time.Duration) (state State, changed bool) {
	_, changed = l.Look(now)
	if m := Margin(l.timeout); l.state == Connected && (by > m || by < -m) {
		_, changed = l.Suspend(now)
	}
	return l.state, changed
}

// Expire tells that the log ended the session. It reports whether that is news.
func (l *Life) Expire() bool { return l.finish(Expired) }

// Close tells that the owner ended the session. It reports whether that is news.
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
