package lock

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/claim"
	"github.com/vivarium-go/vivarium/embed/internal/queue"
	"github.com/vivarium-go/vivarium/embed/internal/sessions"
)

// Errors that keep a Semaphore from giving out permits, however long a caller waits.
var (
	// ErrLimitDiffers says that this caller's limit differs from the one that other callers have
	// written down. Give all callers the same limit, or set it with Resize.
	ErrLimitDiffers = errors.New("the semaphore has another limit")
	// ErrNoLimit says that the limit is unknown: no caller has given one, or the data of the
	// semaphore's znode is not a number.
	ErrNoLimit = errors.New("the semaphore has no limit")
	// ErrTooManyPermits says that a call wants more permits than there are.
	ErrTooManyPermits = errors.New("more permits than the semaphore has")
)

// A Semaphore gives out permits, up to a limit that all its callers share. It is fair: permits go
// to callers in the order in which they arrived, so a caller that wants many holds up those behind
// it that want few. Callers that had to queue are let in one commit after the other. Permits belong
// to sessions and come back when their session ends. A call's permits are acquired and given back
// together, so none is lost on the way. A Semaphore may be copied and used by any number of
// goroutines.
//
// The znode of the path has three children. Callers queue below locks. Below leases there is one
// znode for each permit that is out, as in Curator's InterProcessSemaphoreV2. limit exists after a
// Resize. The path's own data is the limit that callers agree on.
type Semaphore struct {
	session *embed.Session
	path    string
	limit   int
	options Options
}

// NewSemaphore returns the semaphore on a path for a session. limit is the number of permits. The
// first caller's limit is written down. A caller with another limit is refused with
// ErrLimitDiffers, unless Resize has set one, which then applies to all. Zero means the limit that
// is written down. A negative limit makes the calls fail with embed.ErrInvalidArgument.
func NewSemaphore(s *embed.Session, path string, limit int) *Semaphore {
	return &Semaphore{session: s, path: path, limit: limit}
}

// With returns the same semaphore with other options. It supports Note and Delay.
func (m *Semaphore) With(o Options) *Semaphore {
	return &Semaphore{session: m.session, path: m.path, limit: m.limit, options: o}
}

// permitsMax is how many permits one call can acquire. Each is a znode, and one transaction creates
// them all.
const permitsMax = 1000

// Acquire waits for n permits, 1 to 1,000, as long as ctx allows. After an error it has no permit,
// and nothing stays in the queue, as after Mutex.Lock. Errors: embed.ErrInvalidArgument if n is out
// of range; ErrTooManyPermits, ErrLimitDiffers and ErrNoLimit, by the limit that the ensemble has;
// and those of Mutex.Lock.
func (m *Semaphore) Acquire(ctx context.Context, n int) (*Hold, error) {
	h, err := m.acquire(ctx, n)
	return h, wrap("acquire", m.path, err)
}

// TryAcquire acquires n permits if they are free and nobody waits. Otherwise it returns ErrHeld.
// Other errors are those of Acquire and Mutex.TryLock.
func (m *Semaphore) TryAcquire(ctx context.Context, n int) (*Hold, error) {
	h, err := m.tryAcquire(ctx, n)
	return h, wrap("try acquire", m.path, err)
}

func (m *Semaphore) check(n int) error {
	switch {
	case n < 1 || n > permitsMax:
		return fmt.Errorf("%w: %d permits wanted, one call can acquire 1 to %d", embed.ErrInvalidArgument, n, permitsMax)
	case m.limit < 0:
		return fmt.Errorf("%w: the limit %d is negative", embed.ErrInvalidArgument, m.limit)
	}
	return m.options.check(false, false)
}

func (m *Semaphore) acquire(ctx context.Context, n int) (*Hold, error) {
	if err := m.check(n); err != nil {
		return nil, err
	}
	h, err := m.acquireFree(ctx, n, nil, false)
	if !errors.Is(err, ErrHeld) {
		return h, err
	}
	c, err := queue.Enter(ctx, m.session, queue.Entry{Kind: queue.Turn, Data: writeNote(m.options.Note, queue.Holding(ctx))}, m.locks())
	if err != nil {
		return nil, err
	}
	if err := c.WaitFirst(ctx); err != nil {
		return nil, err
	}
	h, err = m.acquireFirst(ctx, n, c)
	if errors.Is(err, embed.ErrNotHeld) {
		// Somebody deleted the place in the queue when it was about to be given up.
		err = embed.ErrDeleted
	}
	if err != nil {
		return nil, c.Leave(err)
	}
	return h, nil
}

// acquireFirst waits until the permits are free for c, which is first in the queue.
func (m *Semaphore) acquireFirst(ctx context.Context, n int, c *queue.Contender) (*Hold, error) {
	seen := make(map[string]time.Time)
	for {
		h, err := m.acquireOrSleep(ctx, n, c, seen)
		if h != nil || err != nil {
			return h, err
		}
	}
}

func (m *Semaphore) acquireOrSleep(ctx context.Context, n int, c *queue.Contender, seen map[string]time.Time) (*Hold, error) {
	limit, err := m.session.Watch(ctx, m.path, embed.WatchOnce)
	if err != nil {
		return nil, err
	}
	defer limit.Close()
	// Recursive, because a lost permit that stays for its Delay counts too.
	leases, err := m.session.Watch(ctx, m.leases(), embed.WatchRecursive)
	if err != nil {
		return nil, err
	}
	defer leases.Close()
	// It tells nothing of a permit whose znode may not be read.
	names, err := m.session.Watch(ctx, m.leases(), embed.WatchOnce)
	if err != nil {
		return nil, err
	}
	defer names.Close()
	h, err := m.acquireFree(ctx, n, c, false)
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
	case <-names.Events():
	case <-late:
	case <-c.Claim.Done():
		return nil, c.Claim.Err()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return nil, nil
}

// outwait removes permits that their sessions have lost, once their delays are over. It returns a
// channel that tells when the next delay is over. seen has the time when each loss was first seen.
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
	return m.acquireFree(ctx, n, nil, true)
}

// acquireFree acquires permits that are free: for a contender that is first in the queue, or for a
// caller that did not queue, if nobody else has. The ensemble decides that. This node checks first,
// which often saves the transaction.
func (m *Semaphore) acquireFree(ctx context.Context, n int, first *queue.Contender, prompt bool) (*Hold, error) {
	e := queue.Entry{Kind: queue.Lease, Data: writeNote(m.options.Note, queue.Holding(ctx)), Delay: m.options.Delay, Prompt: prompt}
	for {
		limit, mzxid, err := m.allows(ctx, n)
		switch {
		case queue.Unanswered(err) && !prompt && sessions.Pause(ctx):
			continue
		case errors.Is(err, embed.ErrUnknownOutcome) && prompt && ctx.Err() == nil:
			return nil, embed.ErrUnavailable // it has no permit, whatever became of the limit
		case err != nil:
			return nil, err
		}
		ops := []embed.Op{embed.OpCheckMzxid(m.path, mzxid), embed.OpCheckChildren(m.leases(), limit-n)}
		if first != nil {
			ops = append(ops, claim.OpRelease(first.Claim))
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
			continue // the tree differs from what this node knew
		case err != nil:
			return nil, err
		}
		if prompt {
			_, err = c.Try(ctx)
		} else {
			err = c.Wait(ctx) // until the session is Connected
		}
		if err != nil {
			return nil, errors.Join(err, c.Claim.Release())
		}
		return newHold(ctx, c), nil
	}
}

// allows returns what agreed does, if n permits are not more than the limit. This node may show a
// limit, or a semaphore, that is no longer there, so allows looks again before it refuses.
func (m *Semaphore) allows(ctx context.Context, n int) (limit int, mzxid embed.Zxid, err error) {
	for synced := false; ; synced = true {
		limit, mzxid, err = m.agreed(ctx)
		if err == nil && n > limit {
			err = fmt.Errorf("%w: %d wanted, the limit is %d", ErrTooManyPermits, n, limit)
		}
		if synced || !isRefusal(err) {
			return limit, mzxid, err
		}
		if _, err := m.session.Sync(ctx, m.path); err != nil {
			return 0, 0, err
		}
	}
}

// isRefusal reports whether an error says that the limit allows nothing.
func isRefusal(err error) bool {
	return errors.Is(err, ErrTooManyPermits) || errors.Is(err, ErrLimitDiffers) || errors.Is(err, ErrNoLimit)
}

func held(full bool) error {
	if full {
		return ErrHeld
	}
	return nil
}

// full reports whether more than most permits are out, or, if queues is set, whether anybody
// queues.
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

// Limit returns the number of permits, as this node's replica knows it. Errors: ErrLimitDiffers,
// ErrNoLimit, and those of embed.Session.Get.
func (m *Semaphore) Limit(ctx context.Context) (int, error) {
	limit, _, err := m.agreed(ctx)
	return limit, wrap("limit of", m.path, err)
}

// agreed returns the limit that this node shows, and the zxid that last wrote the path's data. It
// stays the same as long as nobody changes the limit. A version would not do: it is the same again
// when the znode was deleted and created. agreed creates what is missing.
func (m *Semaphore) agreed(ctx context.Context) (limit int, mzxid embed.Zxid, err error) {
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
			// Without its children the znode may have been removed and created anew, with another
			// limit.
			continue
		}
		spoken, _, err := m.session.Get(ctx, m.override())
		switch {
		case err == nil:
			limit, err := parseLimit(m.override(), spoken)
			return limit, stat.Mzxid, err
		case !errors.Is(err, embed.ErrNoNode):
			return 0, 0, err
		case len(data) == 0 && m.limit > 0: // somebody else created the znode without a limit
			err := m.rewrite(ctx, stat.Mzxid, []byte(strconv.Itoa(m.limit)))
			if err != nil && !errors.Is(err, embed.ErrBadVersion) && !errors.Is(err, embed.ErrNoNode) {
				return 0, 0, err
			}
			continue
		}
		limit, err = parseLimit(m.path, data)
		if err == nil && m.limit > 0 && limit != m.limit {
			err = fmt.Errorf("%w: this caller gives %d, the semaphore has %d; give the same limit everywhere or set it with Resize", ErrLimitDiffers, m.limit, limit)
		}
		return limit, stat.Mzxid, err
	}
}

// rewrite writes the path's data, if mzxid was its last write, and applies operations with it.
func (m *Semaphore) rewrite(ctx context.Context, mzxid embed.Zxid, data []byte, ops ...embed.Op) error {
	ops = append([]embed.Op{embed.OpCheckMzxid(m.path, mzxid), embed.OpSet(m.path, data, embed.AnyVersion)}, ops...)
	_, err := m.session.Multi(ctx, ops...)
	return err
}

// complete creates what is missing below the znode, and reports whether anything was.
func (m *Semaphore) complete(ctx context.Context) (made bool, err error) {
	for _, path := range []string{m.locks(), m.leases()} {
		if _, ok, err := m.session.Exists(ctx, path); ok || err != nil {
			continue // the call that uses it reports the error
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

// create creates the znodes of a semaphore that does not exist, if its limit is known.
func (m *Semaphore) create(ctx context.Context) error {
	if m.limit == 0 {
		return fmt.Errorf("%w: nobody has set one, and this caller gives none", ErrNoLimit)
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

// Resize sets the limit. From then on it applies to all callers, whatever limit they give. Permits
// that are out stay out: with a smaller limit nobody is granted a permit until enough have come
// back. Zero removes the limit that Resize has set, and callers must agree again. Errors:
// embed.ErrInvalidArgument if limit is negative or above 2147483647, and those of
// embed.Session.Sync and embed.Session.Multi.
func (m *Semaphore) Resize(ctx context.Context, limit int) error {
	return wrap("resize", m.path, m.resize(ctx, limit))
}

func (m *Semaphore) resize(ctx context.Context, limit int) error {
	if limit < 0 || limit > math.MaxInt32 {
		return fmt.Errorf("%w: the limit %d is not from 0 to 2147483647", embed.ErrInvalidArgument, limit)
	}
	// This node may not know yet what another one has set, or that the znode is another one.
	if _, err := m.session.Sync(ctx, m.path); err != nil {
		return err
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
		op, text := embed.OpDelete(m.override(), embed.AnyVersion), []byte(strconv.Itoa(limit))
		switch {
		case limit == 0 && !spoken:
			return nil
		case limit == 0:
		case spoken:
			op = embed.OpSet(m.override(), text, embed.AnyVersion)
		default:
			op = embed.OpCreate(m.override(), text, embed.Persistent)
		}
		err = m.rewrite(ctx, stat.Mzxid, data, op)
		switch {
		case errors.Is(err, embed.ErrBadVersion), errors.Is(err, embed.ErrNoNode), errors.Is(err, embed.ErrNodeExists):
			continue
		}
		return err
	}
}
