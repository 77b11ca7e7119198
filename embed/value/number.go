package value

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/claim"
	"github.com/vivarium-go/vivarium/embed/internal/queue"
	"github.com/vivarium-go/vivarium/embed/lock"
)

// ErrWrongClock says that a Number's clock shows a time at which the number must not be used. The
// clock has passed the time that was written ahead, because a later one could not be written. Or it
// was set back to a time at which a former owner may have used the number.
var ErrWrongClock = errors.New("the clock shows a time at which the number must not be used")

// aheadMin is the least NumberOptions.Ahead: each third of it costs a commit.
const aheadMin = 100 * time.Millisecond

// retryPause is the time between two attempts of a Number that gets no answer.
const retryPause = 50 * time.Millisecond

// NumberOptions say how a number is taken. The zero value is usable.
type NumberOptions struct {
	// Skew is how long a lost number lingers before anybody else can take it; see
	// embed.CreateOptions.TTL. It is for ids that the loser still makes because it did not look at
	// Number.Err in time. It is whole milliseconds. Zero means that a lost number is free when its
	// session has ended.
	Skew time.Duration
	// Ahead is how far ahead of use the time is written, in steps of about a third of it. Each step
	// is a commit. After a crash the next owner waits for so long at most. Zero means the session's
	// timeout; the least is 100 ms.
	Ahead time.Duration
	// Clock is the clock from which the ids get their times. Nil means time.Now.
	Clock func() time.Time
}

func (o *NumberOptions) check(n int) error {
	switch {
	case n <= 0:
		return fmt.Errorf("%w: the least of %d numbers", embed.ErrInvalidArgument, n)
	case o.Skew < 0 || o.Skew%time.Millisecond != 0:
		return fmt.Errorf("%w: %w: NumberOptions.Skew is %v, not whole milliseconds", embed.ErrInvalidArgument, embed.ErrInvalidTTL, o.Skew)
	case o.Ahead < 0 || o.Ahead > 0 && o.Ahead < aheadMin:
		return fmt.Errorf("%w: NumberOptions.Ahead is %v, not at least %v", embed.ErrInvalidArgument, o.Ahead, aheadMin)
	}
	return nil
}

// A Number is a worker number: a small number that no other live process has. It ends when it is
// released, at its session's local deadline, when its session or node ends, or when somebody
// deletes its znode. It ends on its own node before anybody else can take the number, except after
// such a deletion. An ended Number does not come back.
//
// The ids that a worker makes of the time, its number and a count are unique if the time is one that
// Now returned. The worker must not read the clock itself: it may be set back before anybody asks
// whether the number may be used.
//
//	now, err := number.Now()
//	if err != nil {
//		return 0, err
//	}
//	return id(now, number.N(), count), nil
//
// The next owner of the number gets it only when its own clock shows a later time than any that Now
// returned. So a clock that stands behind makes the next owner wait, and no id twice. A worker whose
// clock is set back a little while it owns the number must not use a time again by itself.
//
// All methods may be called by any number of goroutines. The zero Number has ended with
// embed.ErrNotHeld.
type Number struct {
	// Immutable. All are nil in the zero Number.
	session *embed.Session
	claim   *claim.Claim
	tenure  *claim.Tenure
	n       int
	czxid   embed.Zxid
	used    string // the path of the time
	after   int64  // a former owner may have used the number up to here, in Unix milliseconds
	ahead   time.Duration
	clock   func() time.Time
	values  context.Context // of TakeNumber's ctx
	life    context.Context // ends with the tenure, or by end
	end     context.CancelCauseFunc
	kept    chan struct{} // closed when keepLoop has ended

	until    atomic.Int64 // it may be used before this time, in Unix milliseconds
	passed   atomic.Int64 // no time that Now returned is later
	released atomic.Bool
}

// TakeNumber takes the least number from 0 to n-1 that is free and whose time the clock has passed,
// up to which a former owner may have used it. It holds the number as a lock is held. While there is
// none, it waits, as long as ctx allows. It passes over a number whose time cannot be read, until
// somebody deletes or corrects that. It also outlasts the lack of a quorum. After an error nothing is
// taken.
//
// What it keeps are an ephemeral, <dir>/held/<number>, and a persistent znode with that time,
// <dir>/used/<number>. Do not delete the second: it is what the next owner waits for.
//
// Errors: the ctx's; why the session or the node ended; embed.ErrDeleted if somebody deleted the
// ephemeral meanwhile; embed.ErrNotNumber if no number is held, and no time can be read;
// embed.ErrInvalidArgument for n and wrong options; those of embed.Session.Create.
func TakeNumber(ctx context.Context, s *embed.Session, dir string, n int, o NumberOptions) (*Number, error) {
	if err := o.check(n); err != nil {
		return nil, wrap("take number", dir, err)
	}
	for {
		number, err := takeOne(ctx, s, dir, n, o)
		switch {
		case err == nil:
			go number.keepLoop()
			return number, nil
		case !errors.Is(err, embed.ErrSuspended): // it was suspended before its first time was written
			return nil, wrap("take number", dir, err)
		}
	}
}

// takeOne takes a number. After embed.ErrSuspended nothing is taken, and another attempt waits
// until there is a quorum.
func takeOne(ctx context.Context, s *embed.Session, dir string, n int, o NumberOptions) (*Number, error) {
	number := &Number{session: s, ahead: o.Ahead, clock: o.Clock, values: ctx, kept: make(chan struct{})}
	if number.ahead == 0 {
		number.ahead = s.Timeout()
	}
	if number.clock == nil {
		number.clock = time.Now
	}
	err := number.take(ctx, dir, n, o.Skew)
	if err == nil {
		err = number.begin(ctx)
	}
	if err != nil && number.claim != nil {
		_ = number.claim.Release() // if it cannot be sent, the node keeps trying
	}
	return number, err
}

// take claims the least number that is free and whose former owners the clock has passed.
func (n *Number) take(ctx context.Context, dir string, numbers int, skew time.Duration) error {
	_, err := queue.Sync(ctx, n.session, dir) // else a number may seem to be held that is free
	for err == nil {
		var found bool
		found, err = n.look(ctx, dir, numbers)
		if err != nil || !found {
			continue
		}
		err = n.enter(ctx, child(child(dir, "held"), strconv.Itoa(n.n)), skew)
		switch {
		case errors.Is(err, embed.ErrNodeExists):
			err = nil // somebody else was faster
		case err == nil:
			// The claim was created after every write of the time by a former owner, so this node
			// shows the last one.
			var left time.Duration
			if left, err = n.left(ctx, dir); err == nil && left < 0 {
				return nil
			}
			_ = n.claim.Release() // if it cannot be sent, the node keeps trying
			if isUnreadable(err) {
				err = nil // look passes over it
			}
		}
	}
	return err
}

// clockPause is the longest time for which a Number trusts a timer: the clock may be set meanwhile.
const clockPause = time.Second

// look sets n.n to the least number that may be taken, or waits until there may be one. It passes
// over a number whose time cannot be read, and fails if that is true of all.
func (n *Number) look(ctx context.Context, dir string, numbers int) (found bool, err error) {
	parent := child(dir, "held")
	w, err := n.session.Watch(ctx, parent, embed.WatchOnce)
	if err != nil {
		return false, err
	}
	defer w.Close()
	names, _, err := n.session.Children(ctx, parent)
	if err != nil && !errors.Is(err, embed.ErrNoNode) {
		return false, err
	}
	taken := make(map[string]bool, len(names))
	for _, name := range names {
		taken[name] = true
	}
	why := fmt.Sprintf("all %d are held", numbers)
	var pause time.Duration
	var unreadable error
	held := 0
	for n.n = range numbers {
		if taken[strconv.Itoa(n.n)] {
			held++
			continue
		}
		left, err := n.left(ctx, dir)
		switch {
		case isUnreadable(err):
			unreadable = cmp.Or(unreadable, err)
		case err != nil:
			return false, err
		case left < 0:
			return true, nil
		case pause == 0 || left < pause:
			pause = left + time.Millisecond
			why = fmt.Sprintf("%d may have been used up to %v, which the clock has not passed", n.n, time.UnixMilli(n.after).UTC())
		}
	}
	if pause == 0 && unreadable != nil {
		if held == 0 {
			return false, unreadable
		}
		pause = clockPause // nobody tells when it can be read
		why = fmt.Sprintf("%d of %d are held, and %v", held, numbers, unreadable)
	}
	var later <-chan time.Time
	if pause > 0 {
		later = time.After(min(pause, clockPause))
	}
	select {
	case <-w.Events():
		return false, n.session.Err()
	case <-later:
		return false, n.session.Err()
	case <-ctx.Done():
		return false, fmt.Errorf("%s: %w", why, ctx.Err())
	}
}

// isUnreadable reports whether what a number's time is cannot be told, which concerns it alone.
func isUnreadable(err error) bool {
	return errors.Is(err, embed.ErrNotNumber) || errors.Is(err, embed.ErrNoAuth)
}

// left sets n.after to the time up to which n.n may have been used, and returns how long it takes the
// clock to pass that: less than zero if it has.
func (n *Number) left(ctx context.Context, dir string) (time.Duration, error) {
	n.used, n.after = child(child(dir, "used"), strconv.Itoa(n.n)), 0
	data, _, err := n.session.Get(ctx, n.used)
	switch {
	case errors.Is(err, embed.ErrNoNode):
		return -1, nil
	case err != nil:
		return 0, err
	}
	if n.after, err = embed.Text.Parse(data); err != nil {
		return 0, wrap("read", n.used, err)
	}
	return time.UnixMilli(n.after).Sub(n.now()), nil
}

// enter claims the ephemeral of the number. embed.ErrNodeExists means that somebody else has it.
func (n *Number) enter(ctx context.Context, path string, skew time.Duration) error {
	o := embed.CreateOptions{Mode: embed.Ephemeral, TTL: skew, Parents: true}
	c, r, err := queue.Submit(ctx, n.session, embed.OpCreateWith(path, nil, o))
	if err != nil {
		return err
	}
	n.claim, n.czxid = c, r[len(r)-1].Stat.Czxid
	return nil
}

// begin holds the claim, and writes the first time.
func (n *Number) begin(ctx context.Context) (err error) {
	if n.tenure, err = queue.Hold(ctx, n.session, n.claim); err != nil {
		return err
	}
	n.life, n.end = context.WithCancelCause(n.tenure.Context())
	for {
		err := queue.Retry(ctx, n.session, func() error { return n.write(ctx) })
		if ended := n.tenure.Err(); ended != nil {
			return ended
		}
		if err != nil || n.now().UnixMilli() < n.until.Load() {
			return err
		}
	}
}

// now returns the time of the clock, in milliseconds.
func (n *Number) now() time.Time { return n.clock().Truncate(time.Millisecond) }

// write writes the time up to which the number may be used from now on.
func (n *Number) write(ctx context.Context) error {
	until := n.now().Add(n.ahead).UnixMilli()
	until = max(until, n.until.Load()) // the clock may have been set back
	data, guard := embed.Text.Format(until), claim.OpGuard(n.tenure)
	_, err := n.session.Multi(ctx, guard, embed.OpSet(n.used, data, embed.AnyVersion))
	if errors.Is(err, embed.ErrNoNode) {
		_, err = create(ctx, n.session, n.used, data, guard)
	}
	if err == nil {
		n.until.Store(until)
	}
	return err
}

// keepLoop writes the time ahead until the Number ends.
func (n *Number) keepLoop() {
	defer close(n.kept)
	pause := n.ahead / 3
	for {
		select {
		case <-time.After(pause):
		case <-n.life.Done():
			return
		}
		// The last attempt ends when the clock passes the time, and Err then ends the Number.
		left := time.UnixMilli(n.until.Load()).Sub(n.clock())
		ctx, cancel := context.WithTimeout(n.life, min(left+time.Millisecond, n.ahead/3))
		err := n.write(ctx)
		cancel()
		if n.Err() != nil {
			return
		}
		pause = n.ahead / 3
		if err != nil {
			pause = min(pause, retryPause)
		}
	}
}

// N returns the number.
func (n *Number) N() int { return n.n }

// Token returns the fencing token: it grows with every owner of the number, see lock.Token. Compare
// tokens of the same number only.
func (n *Number) Token() lock.Token { return lock.Token{Zxid: n.czxid} }

// Guard lets a Multi be applied only while nobody else can have taken the number, as lock.Guard
// does for a Hold.
func Guard(n *Number) embed.Op {
	if n == nil {
		n = new(Number) // which is refused
	}
	return claim.OpGuard(n.tenure)
}

// Context returns a context with the values of TakeNumber's ctx and the lifetime of the Number.
// context.Cause says why it ended. Its Err and Done compare the clock when they are called; a
// derived context ends with it, but does not compare the clock.
func (n *Number) Context() context.Context {
	if n.tenure == nil {
		return new(claim.Tenure).Context()
	}
	return numberContext{n.life, n}
}

// Done compares the clock and returns a channel that is closed when the Number has ended.
func (n *Number) Done() <-chan struct{} { return n.Context().Done() }

// Now reads the clock and returns the time, at which the number may be used. No other owner gets
// it, whatever becomes of the clock. The errors are those of Err, and end the Number.
func (n *Number) Now() (time.Time, error) {
	if n.tenure == nil {
		return time.Time{}, embed.ErrNotHeld
	}
	now := n.clock()
	n.pass(now.UnixMilli()) // before the check: a Release that misses this time has ended the tenure
	if err := n.check(now); err != nil {
		return time.Time{}, err
	}
	return now, nil
}

// pass notes a time that Now is about to return.
func (n *Number) pass(now int64) {
	for was := n.passed.Load(); now > was && !n.passed.CompareAndSwap(was, now); was = n.passed.Load() {
	}
}

// Err compares the clock and returns why the Number ended, or nil while it lasts. The reasons are
// those of lock.Hold.Err, and ErrWrongClock.
func (n *Number) Err() error {
	if n.tenure == nil {
		return embed.ErrNotHeld
	}
	return n.check(n.clock())
}

// check ends the Number if it must not be used at a time that the clock shows.
func (n *Number) check(now time.Time) error {
	lost := n.tenure.Err()
	if err := cmp.Or(context.Cause(n.life), lost); err != nil {
		return err
	}
	if at := now.UnixMilli(); at <= n.after || at >= n.until.Load() {
		n.end(ErrWrongClock)
		n.tenure.End()
	}
	return cmp.Or(context.Cause(n.life), n.tenure.Err())
}

// Release gives the number up. It is idempotent and frees nothing but this Number. It waits until
// the ensemble knows, for at most Config.RequestTimeout. After an error the Number has ended all
// the same, and the node keeps trying until the session ends.
//
// After a Release the next owner need not wait for the time that was written ahead. It waits until
// its clock has passed the Release, and every time that Now returned.
func (n *Number) Release() error {
	if n.tenure == nil {
		return nil
	}
	if n.released.CompareAndSwap(false, true) {
		lasted := n.Err() == nil
		n.tenure.End()
		<-n.kept
		if lasted {
			n.giveUp()
		}
	}
	return n.claim.Release()
}

// giveUp writes the time of the release and gives up the claim, in one transaction. Nobody has used
// the number since the tenure ended. If the transaction is not applied, the time stays that was
// written ahead.
func (n *Number) giveUp() {
	used := min(max(n.after, n.passed.Load(), n.now().UnixMilli()), n.until.Load())
	_, _ = n.session.Multi(context.Background(), embed.OpSet(n.used, embed.Text.Format(used), embed.AnyVersion), claim.OpRelease(n.claim))
}

// A numberContext is a Number's context.
type numberContext struct {
	context.Context // the Number's life
	number          *Number
}

// Err asks the Number first, which ends the context if it has ended.
func (c numberContext) Err() error {
	_ = c.number.Err()
	return c.Context.Err()
}

// Done asks the Number too.
func (c numberContext) Done() <-chan struct{} {
	_ = c.number.Err()
	return c.Context.Done()
}

// Value asks the inner context first, because package context uses it to find the cause.
func (c numberContext) Value(key any) any {
	if v := c.Context.Value(key); v != nil {
		return v
	}
	return c.number.values.Value(key)
}
