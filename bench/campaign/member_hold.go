package campaign

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/election"
	"github.com/vivarium-go/vivarium/embed/lock"
)

// held is the common part of lock.Hold and election.Leadership.
type held interface {
	Token() lock.Token
	Context() context.Context
	Err() error
}

// accessEvery is how often a holder uses what the hold protects. It tells the campaign each time.
// So the campaign also knows of holders that are killed.
func (m *Member) accessEvery() time.Duration { return 50 * m.Ask }

// guardedBy returns the znode, in the same area, that a lock or an election protects.
func guardedBy(path string) string {
	return areaOf(path) + "/guarded-by" + strings.ReplaceAll(inArea(path), "/", "-")
}

// holders are all users of holds of one request, in turn or at the same time.
type holders struct {
	m     *Member
	s     *embed.Session // sends the writes
	q     *Request
	count atomic.Int64
}

// A holder uses one hold and reports what it sees.
type holder struct {
	*holders
	told  holding
	h     held
	guard func() embed.Op  // nil if there is none
	s     *embed.Session   // sends the writes
	heard <-chan struct{}  // closed when the holder is to give the hold up
	heed  string           // what is counted then
	lax   bool             // see named
	every time.Duration    // how often it uses what the hold protects
	ask   time.Duration    // how often it asks the hold
	sent  []*embed.Pending // guarded writes, in the order of told.Guarded
}

// holder returns the user of a hold that was requested at asked or later.
func (a *holders) holder(k holdKind, asked time.Duration, h held) *holder {
	u := &holder{holders: a, s: a.s, h: h, every: a.m.accessEvery(), ask: a.m.Ask}
	u.told = holding{Number: int(a.count.Add(1)), Kind: k, Permits: a.q.Hold.Permits, Delay: a.q.Hold.Delay, Identity: a.q.Hold.Identity, Token: h.Token(), Asked: asked, From: a.m.Now()}
	switch h := h.(type) {
	case *lock.Hold:
		if u.q.Hold.Bare {
			break
		}
		u.guard = func() embed.Op { return lock.Guard(h) }
	case *election.Leadership:
		u.s, u.guard = sessionOf(h, u.s), func() embed.Op { return election.Guard(h) }
	case running:
		u.told.Name = h.name
	case named:
		u.told.Name, u.guard, u.lax = h.name, h.guard, h.lax
		if h.long {
			u.ask, u.every = u.every, 50*u.every
		}
		if h.s != nil {
			u.s = h.s
		}
	}
	u.tell()
	u.write()
	return u
}

// named is one of the holds below the path of a request.
type named struct {
	held
	name  string
	guard func() embed.Op // nil if it guards nothing
	s     *embed.Session  // sends the writes; nil means the request's
	lax   bool            // the guard may hold for a while after the holder was told of the end
	long  bool            // it lasts for seconds, so its holder asks and writes less often
}

// running is what a function knows while it runs under a hold or a leadership.
type running struct {
	ctx   context.Context
	token lock.Token
	name  string // below the path of the request
}

func (r running) Token() lock.Token        { return r.token }
func (r running) Context() context.Context { return r.ctx }

func (r running) Err() error {
	if r.ctx.Err() == nil {
		return nil
	}
	return context.Cause(r.ctx)
}

// tell tells the campaign what the holder saw of the hold.
func (u *holder) tell() {
	told := u.told
	told.Guarded = slices.Clone(told.Guarded)
	u.q.say(Reply{Hold: &told}, true)
}

// wrong tells the campaign of a broken promise.
func (a *holders) wrong(format string, args ...any) {
	a.q.say(Reply{Wrong: fmt.Sprintf(format, args...)}, true)
}

// use asks the hold again and again until it is lost or length has passed. Now and then it calls
// work. It records the last question that was answered "still held". While a write has no outcome,
// use does not let go: a holder that is cut off clings to its hold. It reports whether the hold
// still existed.
func (u *holder) use(length time.Duration, work func()) bool {
	begun := u.m.Now()
	last := begun
	for at := begun; (at-begun < length || u.waits()) && u.m.rest.Err() == nil; at = u.m.Now() {
		err := u.h.Err()
		if err != nil {
			if u.h.Context().Err() == nil {
				u.wrong("Err of the %s with token %v is %v and its Context has not ended", u.told.Kind, u.told.Token, err)
			}
			u.told.Lost = err.Error()
			return false
		}
		u.told.Until = at
		select {
		case <-u.heard:
			u.seen(u.heed)
			return true
		default:
		}
		if at-last >= u.every {
			last = at
			u.tell()
			if at-begun < length {
				u.write()
				work()
			}
		}
		time.Sleep(stretch(u.ask))
	}
	return true
}

// give tells the campaign that the hold is about to be released.
func (u *holder) give() {
	u.told.Given = true
	u.tell()
}

// write sends a guarded write and does not wait for it, so the write may still be in flight when
// the hold is lost.
func (u *holder) write() {
	if u.guard == nil {
		return
	}
	data := fmt.Sprintf("%s.%d.%d", u.q.Data, u.told.Number, len(u.sent))
	ended := u.h.Err() != nil && !u.lax
	ops := []embed.Op{u.guard()}
	for _, path := range u.q.paths() {
		ops = append(ops, embed.OpSet(guardedBy(path), []byte(data), embed.AnyVersion))
	}
	u.sent = append(u.sent, u.s.Submit(context.Background(), ops...))
	u.told.Guarded = append(u.told.Guarded, guarded{Data: data, Ended: ended})
}

// waits reports whether the newest write has no outcome yet.
func (u *holder) waits() bool {
	if len(u.sent) == 0 {
		return false
	}
	select {
	case <-u.sent[len(u.sent)-1].Done():
		return false
	default:
		return true
	}
}

// end makes sure that the hold has ended. It writes once more, which must be refused, and waits for
// the outcomes of all writes.
func (u *holder) end() {
	if u.h.Err() == nil && !u.lax {
		u.wrong("the %s with token %v was given up and does not end", u.told.Kind, u.told.Token)
	}
	u.write()
	ctx, cancel := limit(context.Background(), requestTimeout)
	defer cancel()
	for i, p := range u.sent {
		g := &u.told.Guarded[i]
		g.Outcome = unknown
		select {
		case <-p.Done():
			results, err := p.Result()
			if g.Outcome = outcomeOf(err); err == nil {
				g.Mzxid = results[1].Stat.Mzxid
			}
		case <-ctx.Done():
		}
	}
	u.tell()
}

// untilRest returns a ctx that also ends when the member is to rest. It limits calls that wait for
// other holders.
func (m *Member) untilRest(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	context.AfterFunc(m.rest, cancel)
	return ctx, cancel
}

// section acquires a lock, uses what it protects and releases it.
func (m *Member) section(ctx context.Context, n opener, s *embed.Session, q *Request) error {
	ctx, cancel := m.untilRest(ctx)
	defer cancel()
	a := &holders{m: m, s: s, q: q}
	switch q.Hold.Kind {
	case kindKept:
		return a.share(ctx, m.keptMutex(s, q.Path))
	case kindRead, kindWrite:
		return a.readOrWrite(ctx, lock.NewRWMutex(s, q.Path).With(options(q)))
	}
	if q.Hold.Do {
		return a.do(ctx, n)
	}
	begun := a.m.Now()
	h, err := acquireHold(ctx, s, q)
	if err != nil {
		return err
	}
	a.holder(q.Hold.Kind, begun, h).section(h)
	return nil
}

// section uses a hold and releases it.
func (u *holder) section(h *lock.Hold) {
	if u.q.Hold.Heed {
		u.heard, u.heed = h.Revoked(), "hold given up for who asked"
	}
	u.use(u.q.Length, func() {})
	u.give()
	_ = h.Release() // if the release cannot be sent, the node keeps trying
	u.end()
}

// do uses what a mutex protects in a function.
func (a *holders) do(ctx context.Context, n opener) error {
	var u *holder
	held := false
	begun := a.m.Now()
	err := lock.Do(ctx, n, a.q.Path, func(inner context.Context, t lock.Token) error {
		u = a.holder(kindMutex, begun, running{ctx: inner, token: t})
		held = u.use(a.q.Length, func() {})
		u.give()
		return nil
	})
	if u == nil {
		return err
	}
	u.end()
	if !held && err == nil && ctx.Err() == nil {
		u.wrong("the %s with token %v was lost, but Do returned no error", u.told.Kind, u.told.Token)
	}
	return nil // the error only says that the hold was lost
}

// resize sets the limit of a semaphore.
func resize(ctx context.Context, s *embed.Session, q *Request) error {
	limit, err := strconv.Atoi(q.Data)
	if err != nil {
		return err
	}
	return lock.NewSemaphore(s, q.Path, 0).Resize(ctx, limit)
}

// revoke asks the present or next holder for a lock.
func revoke(ctx context.Context, s *embed.Session, path string) error {
	if _, err := s.Sync(ctx, path); err != nil { // otherwise it may ask an earlier holder
		return err
	}
	return lock.Revoke(ctx, s, path)
}

// options returns the options of a requested lock.
func options(q *Request) lock.Options {
	return lock.Options{Delay: stretch(q.Hold.Delay), Identity: q.Hold.Identity}
}

// A locker is a lock that callers may wait for.
type locker interface {
	Lock(context.Context) (*lock.Hold, error)
	TryLock(context.Context) (*lock.Hold, error)
}

// errNotFree says that a lock was not free at once.
var errNotFree = errors.New("not free at once")

// acquireHold acquires a lock of a kind.
func acquireHold(ctx context.Context, s *embed.Session, q *Request) (*lock.Hold, error) {
	var l locker
	o := options(q)
	switch q.Hold.Kind {
	case kindMutex:
		l = lock.NewMutex(s, q.Path).With(o)
	case kindMulti:
		l = lock.NewMulti(s, q.paths()...).With(o)
	case kindWrite:
		l = lock.NewRWMutex(s, q.Path).With(o)
	case kindRead:
		l = readLock{lock.NewRWMutex(s, q.Path).With(o)}
	case kindKey:
		l = keyLock(s, q.Path, o)
	case kindPermit:
		l = permits{lock.NewSemaphore(s, q.Path, permitsLimit).With(o), q.Hold.Permits}
	default:
		return nil, fmt.Errorf("no lock %q", q.Hold.Kind)
	}
	return lockOrTry(ctx, l, q.Hold.Try)
}

func lockOrTry(ctx context.Context, l locker, try bool) (*lock.Hold, error) {
	if !try {
		return l.Lock(ctx)
	}
	h, err := l.TryLock(ctx)
	if errors.Is(err, lock.ErrHeld) || errors.Is(err, embed.ErrSuspended) {
		err = errNotFree
	}
	return h, err
}

// A readLock is the read lock of a RWMutex.
type readLock struct{ *lock.RWMutex }

func (l readLock) Lock(ctx context.Context) (*lock.Hold, error)    { return l.RLock(ctx) }
func (l readLock) TryLock(ctx context.Context) (*lock.Hold, error) { return l.TryRLock(ctx) }

// permits are some of a semaphore's permits.
type permits struct {
	*lock.Semaphore
	n int
}

func (l permits) Lock(ctx context.Context) (*lock.Hold, error)    { return l.Acquire(ctx, l.n) }
func (l permits) TryLock(ctx context.Context) (*lock.Hold, error) { return l.TryAcquire(ctx, l.n) }

const (
	// keep is how long a kept mutex lets a contender elsewhere wait.
	keep = 50 * time.Millisecond
	// sharers acquire a kept mutex at the same time, each so many times.
	sharers, sharerTurns = 3, 3
)

// A keptKey identifies a kept mutex by its session and its path.
type keptKey struct {
	session *embed.Session
	path    string
}

// keptMutex returns the one mutex that all holders of a session use for a path.
func (m *Member) keptMutex(s *embed.Session, path string) *lock.Mutex {
	m.mu.Lock()
	defer m.mu.Unlock()
	k := keptKey{s, path}
	if m.mu.kept[k] == nil {
		m.mu.kept[k] = lock.NewMutex(s, path).With(lock.Options{Keep: stretch(keep)})
	}
	return m.mu.kept[k]
}

// share lets several holders take turns with one mutex.
func (a *holders) share(ctx context.Context, l *lock.Mutex) error {
	errs := make([]error, sharers)
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() {
			for n := 0; n < sharerTurns && errs[i] == nil; n++ {
				begun := a.m.Now()
				h, err := lockOrTry(ctx, l, a.q.Hold.Try)
				if errs[i] = err; err == nil {
					a.holder(kindKept, begun, h).section(h)
				}
			}
		})
	}
	all.Wait()
	for _, err := range errs {
		if !outcomeOf(err).documented() {
			return err
		}
	}
	return errs[0]
}

// readOrWrite acquires one of the two locks and uses it. It may then turn the lock into the other
// and use that.
func (a *holders) readOrWrite(ctx context.Context, l *lock.RWMutex) error {
	begun := a.m.Now()
	h, err := acquireHold(ctx, a.s, a.q)
	if err != nil {
		return err
	}
	k := a.q.Hold.Kind
	u := a.holder(k, begun, h)
	held := u.use(a.q.Length, func() {})
	u.give()
	if !held || !a.q.Hold.Convert {
		_ = h.Release()
		u.end()
		return nil
	}
	begun = a.m.Now()
	if k == kindWrite {
		next, err := l.Downgrade(ctx, h)
		if err != nil {
			u.end() // it has ended anyway
			return err
		}
		a.seen("downgraded")
		reader := a.holder(kindRead, begun, next)
		u.end()
		reader.section(next)
		return nil
	}
	next, err := l.Upgrade(ctx, h)
	if err != nil {
		u.use(0, func() {}) // it goes on, unless it was lost
		_ = h.Release()
		u.end()
		return err
	}
	a.seen("upgraded")
	writer := a.holder(kindWrite, begun, next)
	u.end()
	writer.section(next)
	return nil
}

// seen tells the campaign of something to count.
func (a *holders) seen(what string) { a.q.say(Reply{Data: what}, true) }

// lead campaigns, publishes a few values and makes room. section is its counterpart for locks.
func (m *Member) lead(ctx context.Context, n opener, s *embed.Session, q *Request) error {
	ctx, cancel := m.untilRest(ctx)
	defer cancel()
	a := &holders{m: m, s: s, q: q}
	if q.Hold.Kind == kindLatch {
		return a.latch(ctx, n)
	}
	if q.Hold.Withdraw > 0 {
		return a.withdraw(ctx)
	}
	begun := a.m.Now()
	l, err := stand(ctx, s, q)
	if err != nil {
		return err
	}
	u := a.holder(kindLeader, begun, l)
	u.lead(ctx, l)
	switch begun = a.m.Now(); q.Hold.Then {
	case thenTransfer:
		err = a.transfer(ctx, u, l)
		_ = l.Resign() // nobody accepted it
		u.end()
		return err
	case thenRequeue:
		c, err := l.Requeue(ctx)
		u.end()
		if err != nil {
			return a.unlessLost(u, err)
		}
		if l, err = c.Wait(ctx); err != nil {
			return err
		}
		a.seen("leads after Requeue")
		u = a.holder(kindLeader, begun, l)
		u.lead(ctx, l)
	}
	_ = l.Resign() // like Release
	u.end()
	return nil
}

// unlessLost returns err, unless err only says why the leadership ended. The leadership may have
// ended after the last question, when nobody recorded the loss.
func (a *holders) unlessLost(u *holder, err error) error {
	if errors.Is(err, u.h.Err()) {
		return nil
	}
	return err
}

func stand(ctx context.Context, s *embed.Session, q *Request) (*election.Leadership, error) {
	e, value := election.New(s, q.Path), []byte(q.Data+".0")
	if q.Hold.Priority == 0 {
		return e.Campaign(ctx, value)
	}
	c, err := e.Enter(ctx, value, election.Options{Priority: q.Hold.Priority})
	if err != nil {
		return nil, err
	}
	return c.Wait(ctx)
}

// withdraw withdraws a candidate, which may lead by then.
func (a *holders) withdraw(ctx context.Context) error {
	begun := a.m.Now()
	c, err := election.New(a.s, a.q.Path).Enter(ctx, []byte(a.q.Data+".0"), election.Options{Priority: a.q.Hold.Priority})
	if err != nil {
		return err
	}
	withdrawn := make(chan time.Duration, 1)
	time.AfterFunc(stretch(a.q.Hold.Withdraw), func() {
		if err := c.Withdraw(); err != nil {
			withdrawn <- 0 // the node keeps trying
			return
		}
		withdrawn <- a.m.Now()
	})
	l, err := c.Wait(ctx)
	if err == nil {
		u := a.holder(kindLeader, begun, l)
		u.use(a.q.Hold.Withdraw+requestTimeout, func() {})
		u.give()
		u.told.Withdrawn = <-withdrawn
		_ = l.Resign()
		u.end()
		a.seen("leader withdrawn")
		return nil
	}
	at := <-withdrawn
	if !errors.Is(err, embed.ErrReleased) {
		return err
	}
	// Withdraw waits for the removal of the znode only if the candidate leads. A write that is sent
	// after it takes effect after it, so this one waits for the removal.
	if err := a.s.Delete(ctx, c.Path()+"/none", embed.AnyVersion); !errors.Is(err, embed.ErrNoNode) {
		return err
	}
	// Another candidate may have the place by now, with the name that belongs to it.
	stat, ok, err := a.s.Exists(ctx, c.Path())
	if err == nil && ok && stat.EphemeralOwner == a.s.ID() && at > 0 {
		a.wrong("a candidate was withdrawn but is still in the queue: %s", c.Path())
	}
	a.seen("candidate withdrawn")
	return errNotFree
}

// balance shares elections with the other members.
func (m *Member) balance(ctx context.Context, n opener, s *embed.Session, q *Request) error {
	ctx, cancel := m.untilRest(ctx)
	defer cancel()
	a := &holders{m: m, s: s, q: q}
	begun := a.m.Now()
	return election.Balance(ctx, n, q.Path, sharedNames, []byte(q.Data+".0"), func(inner context.Context, name string, t lock.Token) error {
		u := a.holder(kindShared, begun, running{inner, t, name})
		if !u.use(q.Length, func() {}) && ctx.Err() == nil {
			a.seen("balanced leadership lost or handed on")
		}
		u.give()
		return nil
	})
}

// lead uses a leadership and publishes a few values.
func (u *holder) lead(ctx context.Context, l *election.Leadership) {
	n := 0
	u.use(u.q.Length, func() {
		if n++; n%5 == 0 {
			bound, cancel := limit(ctx, u.m.accessEvery())
			defer cancel()
			_ = l.Proclaim(bound, fmt.Appendf(nil, "%s.%d", u.q.Data, n))
		}
	})
}

// transfer transfers a leadership to the last waiting candidate, if there is one, past all others.
func (a *holders) transfer(ctx context.Context, u *holder, l *election.Leadership) error {
	lost := l.Err()
	all, err := election.New(a.s, a.q.Path).Candidates(ctx)
	if err != nil || len(all) == 0 || all[len(all)-1].Path == l.Path() {
		return err
	}
	err = l.Transfer(ctx, all[len(all)-1].Path)
	ended := l.Err()
	switch {
	case err == nil && ended == nil:
		u.wrong("the %s with token %v was transferred and does not end", u.told.Kind, u.told.Token)
	case err == nil:
		a.seen("leadership transferred")
	case errors.Is(err, election.ErrNotTransferred) && ended == nil:
		a.seen("leadership not transferred, goes on")
		err = nil
	case errors.Is(err, election.ErrNotTransferred):
		a.seen("leadership not transferred, but resigned")
	case lost != nil || ended != nil:
		err = nil // the leadership was lost before
	}
	return err
}

// latch leads with a latch once, or twice if it is granted the time.
func (a *holders) latch(ctx context.Context, n opener) error {
	begun := a.m.Now()
	l := election.NewLatch(n, a.q.Path, []byte(a.q.Data+".0"), election.Options{Priority: a.q.Hold.Priority})
	defer l.Close()
	turns := 0
	for leads := range l.Changes(ctx) {
		if leads == nil {
			continue
		}
		u := a.holder(kindLatch, begun, leads)
		u.lead(ctx, leads)
		begun = u.told.From // after a loss, the latch asks again before this code learns of it
		_ = leads.Resign()
		u.end()
		if turns++; turns == 2 {
			return nil
		}
	}
	if turns > 0 {
		return nil
	}
	if err := l.Err(); err != nil {
		return err
	}
	return ctx.Err()
}

// acquireBriefly acquires a lock, or leads, and gives it up at once.
func acquireBriefly(ctx context.Context, s *embed.Session, q *Request) error {
	if q.Hold.Kind == kindLeader {
		l, err := stand(ctx, s, q)
		if err != nil {
			return err
		}
		return l.Resign()
	}
	// all of them: this node may not know the limit that others have set
	if q.Hold.Kind == kindPermit {
		if err := lock.NewSemaphore(s, q.Path, 0).Resize(ctx, 0); err != nil {
			return err
		}
	}
	h, err := acquireHold(ctx, s, q)
	if err != nil {
		return err
	}
	return h.Release()
}

// observe reports what an observer sees, each time a token and a value. It ends with the session,
// or when the member is to rest.
func (m *Member) observe(ctx context.Context, s *embed.Session, q *Request) error {
	ctx, cancel := m.untilRest(ctx)
	defer cancel()
	for l, err := range election.New(s, q.Path).Observe(ctx) {
		if err != nil {
			return err
		}
		q.say(Reply{Token: l.Token, Data: string(l.Value)}, true)
	}
	return nil
}
