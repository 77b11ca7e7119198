package lock

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/internal/queue"
)

// What keeps a Semaphore from giving out permits, however long one waits.
var (
	// ErrLimitDiffers says that this caller's limit is not the one that others have written down.
	// Let all say the same, or have Resize decide.
	ErrLimitDiffers = errors.New("another limit than the semaphore's")
	// ErrNoLimit says that the limit is not known. Nobody has said one, or what is written down in
	// the semaphore's znode is no number.
	ErrNoLimit = errors.New("the semaphore has no limit")
	// ErrTooManyPermits says that one call asks for more permits than the semaphore has.
	ErrTooManyPermits = errors.New("more permits than the semaphore has")
)

// A Semaphore gives out permits, up to a limit that all its callers share. It is fair: permits go to callers in the order they
// arrived, so one who wants many holds up those behind it who want few; those who had to queue are let in by one commit after the
// other. Permits belong to sessions and come back with their end; they are taken and given back as one, so none is lost on the way. It may
// be copied and used by any number of goroutines.
//
// The znode of the path has three children: locks, where callers queue; leases, with one znode for each permit that is out (as
// Curator's InterProcessSemaphoreV2 has them), and limit, if Resize has spoken. The path's own data is the limit that callers agree on.
type Semaphore struct {
	session *embed.Session
	path    string
	limit   int
	options Options
}

// NewSemaphore returns the semaphore of a path for a session. limit is how many permits there are; the first caller's is written down, and
// who comes with another is refused with ErrLimitDiffers, unless Resize has spoken: then that holds for all. Zero is whatever is written down.
// What is less than zero is refused by the calls: embed.ErrInvalidArgument.
func NewSemaphore(s *embed.Session, path string, limit int) *Semaphore {
	return &Semaphore{session: s, path: path, limit: limit}
}

// With returns the same semaphore with options, of which it knows Note and Delay.
func (m *Semaphore) With(o Options) *Semaphore {
	return &Semaphore{session: m.session, path: m.path, limit: m.limit, options: o}
}

// permitsMax is how many permits one call can take: each is a znode, and all are made in one transaction.
const permitsMax = 1000

// Acquire waits for n permits, 1 to 1,000, as long as ctx lets it. If it returns an error it has none, and nothing is left in the queue, or
// what is left goes as soon as that can be sent. Errors: embed.ErrInvalidArgument if n is none of these numbers; ErrTooManyPermits and
// ErrLimitDiffers, also by a limit that this node has not yet heard to be another; ErrNoLimit, and those of Mutex.Lock.
func (m *Semaphore) Acquire(ctx context.Context, n int) (*Hold, error) {
	h, err := m.acquire(ctx, n)
	return h, wrap("acquire", m.path, err)
}

// TryAcquire takes n permits if they are there and nobody waits; else ErrHeld. Other errors are those of Acquire and
// Mutex.TryLock.
func (m *Semaphore) TryAcquire(ctx context.Context, n int) (*Hold, error) {
	h, err := m.tryAcquire(ctx, n)
	return h, wrap("try acquire", m.path, err)
}

func (m *Semaphore) check(n int) error {
	switch {
	case n < 1 || n > permitsMax:
		return fmt.Errorf("%w: %d permits are asked for, 1 to %d can be", embed.ErrInvalidArgument, n, permitsMax)
	case m.limit < 0:
		return fmt.Errorf("%w: the limit is %d, less than zero", embed.ErrInvalidArgument, m.limit)
	}
	return m.options.check(false, false)
}

func (m *Semaphore) acquire(ctx context.Context, n int) (*Hold, error) {
	if err := m.check(n); err != nil {
		return nil, err
	}
	h, err := m.grab(ctx, n, nil, false)
	if !errors.Is(err, ErrHeld) {
		return h, err
	}
	c, err := queue.Enter(ctx, m.session, queue.Entry{Kind: queue.Lock, Data: note(m.options.Note)}, m.locks())
	if err != nil {
		return nil, err
	}
	if err := c.WaitFirst(ctx); err != nil {
		return nil, err
	}
	h, err = m.grabFirst(ctx, n, c)
	if errors.Is(err, embed.ErrNotHeld) {
		err = embed.ErrDeleted // the place, when it was about to be given up
	}
	if err != nil {
		return nil, c.Leave(err)
	}
	return h, nil
}

// grabFirst waits until the permits are there for the contender whose turn it is.
func (m *Semaphore) grabFirst(ctx context.Context, n int, c *queue.Contender) (*Hold, error) {
	seen := make(map[string]time.Time)
	for {
		h, err := m.grabOrSleep(ctx, n, c, seen)
		if h != nil || err != nil {
			return h, err
		}
	}
}

func (m *Semaphore) grabOrSleep(ctx context.Context, n int, c *queue.Contender, seen map[string]time.Time) (*Hold, error) {
	limit, err := m.session.Watch(ctx, m.path, embed.WatchOnce)
	if err != nil {
		return nil, err
	}
	defer limit.Close()
	leases, err := m.session.Watch(ctx, m.leases(), embed.WatchRecursive) // also of one that is lost and stays for its Delay
	if err != nil {
		return nil, err
	}
	defer leases.Close()
	h, err := m.grab(ctx, n, c, false)
	if !errors.Is(err, ErrHeld) {
		return h, err
	}
	late, err := m.outwait(ctx, seen)
	if err != nil {
		return nil, err
	}
	select {
	case <-limit.Events():
	case <-leases.Events():
	case <-late:
	case <-c.Claim.Done():
		return nil, c.Claim.Err()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return nil, nil
}

// outwait removes permits whose sessions have lost them, when their delays are over, and returns what tells of the next one. seen is since when.
func (m *Semaphore) outwait(ctx context.Context, seen map[string]time.Time) (<-chan time.Time, error) {
	names, _, err := m.session.Children(ctx, m.leases())
	if err != nil && !errors.Is(err, embed.ErrNoNode) {
		return nil, err
	}
	var next <-chan time.Time
	var least time.Duration
	for _, name := range names {
		left, err := queue.Outwait(ctx, m.session, queue.Child(m.leases(), name), seen)
		if err != nil {
			return nil, err
		}
		if left > 0 && (least == 0 || left < least) {
			least = left
			next = time.After(left)
		}
	}
	return next, nil
}

func (m *Semaphore) tryAcquire(ctx context.Context, n int) (*Hold, error) {
	if err := m.check(n); err != nil {
		return nil, err
	}
	if state, _ := m.session.State(); state == embed.Suspended {
		return nil, embed.ErrSuspended
	}
	return m.grab(ctx, n, nil, true)
}

// grab takes permits that are there, for a contender whose turn it is or for somebody who has not queued, if nobody has. The ensemble
// judges that; what this node knows spares it the asking.
func (m *Semaphore) grab(ctx context.Context, n int, first *queue.Contender, prompt bool) (*Hold, error) {
	e := queue.Entry{Kind: queue.Lease, Data: note(m.options.Note), Delay: m.options.Delay, Prompt: prompt}
	for {
		limit, version, err := m.agreed(ctx)
		switch {
		case queue.Unanswered(err) && !prompt && pause(ctx):
			continue
		case errors.Is(err, embed.ErrUnknownOutcome) && prompt && ctx.Err() == nil:
			return nil, embed.ErrUnavailable // it has no permit
		case err != nil:
			return nil, err
		}
		if n > limit {
			return nil, fmt.Errorf("%w: %d are asked for, there are %d", ErrTooManyPermits, n, limit)
		}
		ops := []embed.Op{embed.OpCheck(m.path, version), embed.OpCheckChildren(m.leases(), limit-n)}
		if first != nil {
			ops = append(ops, embed.OpRelease(first.Claim))
		} else {
			ops = append(ops, embed.OpCheckChildren(m.locks(), 0))
		}
		if full, err := m.full(ctx, limit-n, first == nil); full || err != nil {
			return nil, errors.Join(err, held(full))
		}
		for range n {
			ops = append(ops, e.Create(m.leases()))
		}
		c, err := e.Claim(ctx, m.session, ops...)
		switch {
		case errors.Is(err, embed.ErrTooManyChildren), errors.Is(err, embed.ErrBadVersion), errors.Is(err, embed.ErrNoNode):
			continue // it is not as this node knew it
		case err != nil:
			return nil, err
		}
		if prompt {
			_, err = c.Try(ctx)
		} else {
			err = c.Wait(ctx) // until the session is safe
		}
		if err != nil {
			return nil, errors.Join(err, c.Claim.Release())
		}
		return newHold(ctx, c), nil
	}
}

// pause lets some time pass and reports whether ctx goes on.
func pause(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(50 * time.Millisecond):
		return true
	}
}

func held(full bool) error {
	if full {
		return ErrHeld
	}
	return nil
}

// full reports whether more permits are out than can be, or if that matters somebody queues.
func (m *Semaphore) full(ctx context.Context, most int, queues bool) (bool, error) {
	leases, _, err := m.session.Exists(ctx, m.leases())
	if err != nil || int(leases.NumChildren) > most {
		return err == nil, err
	}
	if !queues {
		return false, nil
	}
	locks, _, err := m.session.Exists(ctx, m.locks())
	return locks.NumChildren > 0, err
}

func (m *Semaphore) locks() string    { return queue.Child(m.path, "locks") }
func (m *Semaphore) leases() string   { return queue.Child(m.path, "leases") }
func (m *Semaphore) override() string { return queue.Child(m.path, "limit") }

// Limit returns how many permits there are. Errors: ErrLimitDiffers, ErrNoLimit, those of embed.Session.Get.
func (m *Semaphore) Limit(ctx context.Context) (int, error) {
	limit, _, err := m.agreed(ctx)
	return limit, wrap("limit of", m.path, err)
}

// agreed returns the limit and the version of the path's data by which nobody has changed it since. What is missing is made.
func (m *Semaphore) agreed(ctx context.Context) (limit int, version int32, err error) {
	for {
		data, stat, err := m.session.Get(ctx, m.path)
		if errors.Is(err, embed.ErrNoNode) {
			if err := m.create(ctx); err != nil {
				return 0, 0, err
			}
			continue
		}
		if err != nil {
			return 0, 0, err
		}
		if made, err := m.complete(ctx); made || err != nil {
			if err != nil {
				return 0, 0, err
			}
			continue // without its children the znode may have been reaped, and made anew with another limit
		}
		spoken, _, err := m.session.Get(ctx, m.override())
		switch {
		case err == nil:
			limit, err := parseLimit(m.override(), spoken)
			return limit, stat.Version, err
		case !errors.Is(err, embed.ErrNoNode):
			return 0, 0, err
		case len(data) == 0 && m.limit > 0: // of somebody else's making
			_, err := m.session.Set(ctx, m.path, []byte(strconv.Itoa(m.limit)), stat.Version)
			if err != nil && !errors.Is(err, embed.ErrBadVersion) && !errors.Is(err, embed.ErrNoNode) {
				return 0, 0, err
			}
			continue
		}
		limit, err = parseLimit(m.path, data)
		if err == nil && m.limit > 0 && limit != m.limit {
			err = fmt.Errorf("%w: this caller says %d, others have said %d; let all say the same, or have Resize decide", ErrLimitDiffers, m.limit, limit)
		}
		return limit, stat.Version, err
	}
}

// complete makes what is missing below the znode, and reports whether there was any.
func (m *Semaphore) complete(ctx context.Context) (made bool, err error) {
	for _, path := range []string{m.locks(), m.leases()} {
		if _, ok, err := m.session.Exists(ctx, path); ok || err != nil {
			continue // what is wrong with it is told by whoever uses it
		}
		if made, err = true, queue.Ensure(ctx, m.session, path); err != nil {
			return made, err
		}
	}
	return made, nil
}

func parseLimit(path string, data []byte) (int, error) {
	limit, err := strconv.Atoi(string(data))
	if err != nil || limit < 1 {
		return 0, fmt.Errorf("%w: the data of %s is %.20q", ErrNoLimit, path, data)
	}
	return limit, nil
}

// create makes the znodes of a semaphore that is not there, if its limit is known.
func (m *Semaphore) create(ctx context.Context) error {
	if m.limit == 0 {
		return fmt.Errorf("%w: nobody has said one, and this caller does not", ErrNoLimit)
	}
	return m.make(ctx, strconv.Itoa(m.limit))
}

func (m *Semaphore) make(ctx context.Context, data string) error {
	parent, _ := queue.Split(m.path)
	if err := queue.Ensure(ctx, m.session, parent); err != nil {
		return err
	}
	container := embed.CreateOptions{Mode: embed.Container}
	_, err := m.session.Multi(ctx, embed.OpCreateWith(m.path, []byte(data), container), embed.OpCreateWith(m.locks(), nil, container), embed.OpCreateWith(m.leases(), nil, container))
	if errors.Is(err, embed.ErrNodeExists) || errors.Is(err, embed.ErrNoNode) && parent != "/" {
		return nil // somebody else was faster
	}
	return err
}

// Resize sets the limit, which holds from now on for all callers, whatever they say. Permits that are out stay so: with a smaller limit nobody
// is granted any until enough have come back. Zero takes the word back: then callers have to agree again. Errors: embed.ErrInvalidArgument
// if it is less than zero or above 2147483647, those of embed.Session.Multi.
func (m *Semaphore) Resize(ctx context.Context, limit int) error {
	return wrap("resize", m.path, m.resize(ctx, limit))
}

func (m *Semaphore) resize(ctx context.Context, limit int) error {
	if limit < 0 || limit > math.MaxInt32 {
		return fmt.Errorf("%w: a limit of %d", embed.ErrInvalidArgument, limit)
	}
	for {
		data, stat, err := m.session.Get(ctx, m.path)
		if errors.Is(err, embed.ErrNoNode) {
			if limit == 0 {
				return nil
			}
			if err := m.make(ctx, ""); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return err
		}
		_, spoken, err := m.session.Exists(ctx, m.override())
		if err != nil {
			return err
		}
		ops := []embed.Op{embed.OpSet(m.path, data, stat.Version)} // so that it has another version
		text := []byte(strconv.Itoa(limit))
		switch {
		case limit == 0 && !spoken:
			return nil
		case limit == 0:
			ops = append(ops, embed.OpDelete(m.override(), embed.AnyVersion))
		case spoken:
			ops = append(ops, embed.OpSet(m.override(), text, embed.AnyVersion))
		default:
			ops = append(ops, embed.OpCreate(m.override(), text, embed.Persistent))
		}
		_, err = m.session.Multi(ctx, ops...)
		switch {
		case errors.Is(err, embed.ErrBadVersion), errors.Is(err, embed.ErrNoNode), errors.Is(err, embed.ErrNodeExists):
			continue
		}
		return err
	}
}
