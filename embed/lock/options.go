package lock

import (
	"context"
	"fmt"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/internal/queue"
)

// Options say how a lock is acquired. The zero value is usable. A call that acquires the lock
// refuses wrong options with embed.ErrInvalidArgument.
type Options struct {
	// Note is shown by Holders and Waiters. It is the data of the contender's znode, before at most
	// 1 KiB of lines that say what the caller holds already; see Contender.Holding. A line of the
	// note that begins with "holding: " is taken for one of these, unless it is the first. If all
	// this is longer than Config.MaxDataSize, it is refused with embed.ErrTooLarge.
	Note string

	// Delay keeps a lost lock from everybody else for at least this long. A lock is lost if its
	// holder did not release it: its session expired or was Suspended, or its process died. The
	// delay gives requests that the holder had sent elsewhere time to arrive. It is Consul's
	// lock-delay.
	//
	// It is whole milliseconds, fewer than 2^40 of them, or else embed.ErrInvalidTTL. Zero means no
	// delay. If the next contender leaves, the one after it starts the delay over. If nobody waits,
	// the ensemble counts it, and checks every Config.ContainerCheckInterval.
	Delay time.Duration

	// Identity names somebody who may acquire a lost lock again at once, during its Delay, from any
	// session and ahead of all who wait. A Lock that is called before the ensemble knows of the loss
	// waits until then. It is for a Mutex or a RWMutex only, and somebody who was
	// a reader comes back as a reader. The delay is over when the new Hold is released. If the
	// attempt ends before there is a new Hold, the delay begins anew, even if its session was
	// closed. After a forced recovery nobody comes back to what was lost before. Empty means nobody.
	// Identity and Keep exclude each other.
	Identity string

	// Keep lets a Mutex keep its lock after a release, so that the next Hold needs no commit; see
	// the package documentation. It is for a Mutex only. A contender from outside the Mutex gets
	// the lock when it has waited for Keep and the Hold of that moment has ended. TryLock from
	// outside does not wait, so it returns ErrHeld. Zero means that every release gives the lock up.
	//
	// A kept lock costs a znode and a goroutine until somebody else wants it, until Mutex.Forget,
	// or until the session ends. If its session expires or its process ends, Delay applies as if
	// somebody held the lock.
	Keep time.Duration

	// Kazoo names the contender as kazoo's Lock does. Without patterns of its own, such a client
	// sees no other names. Curator's clients do not see this one, so they must not use the same
	// path. It is for a Mutex only, and for Keys.
	Kazoo bool
}

// entry returns the entry of a contender of a kind with these options. ctx is the caller's.
func (o *Options) entry(ctx context.Context, k queue.Kind) queue.Entry {
	if o.Kazoo {
		k = queue.KazooLock
	}
	return queue.Entry{Kind: k, Data: writeNote(o.Note, queue.Holding(ctx)), Delay: o.Delay, Identity: o.Identity}
}

// check returns what is wrong with the options. identity says whether the lock supports Identity,
// and mutex whether it supports Keep and Kazoo.
func (o *Options) check(identity, mutex bool) error {
	switch {
	case o.Delay < 0 || o.Delay%time.Millisecond != 0:
		return fmt.Errorf("%w: %w: Options.Delay is %v, not whole milliseconds", embed.ErrInvalidArgument, embed.ErrInvalidTTL, o.Delay)
	case o.Keep < 0:
		return fmt.Errorf("%w: Options.Keep is %v, but must not be negative", embed.ErrInvalidArgument, o.Keep)
	case o.Keep > 0 && o.Identity != "":
		return fmt.Errorf("%w: Options.Keep and Options.Identity exclude each other: nobody can come back to a kept lock", embed.ErrInvalidArgument)
	case o.Kazoo && !mutex:
		return fmt.Errorf("%w: Options.Kazoo works with a Mutex only", embed.ErrInvalidArgument)
	case o.Keep > 0 && !mutex:
		return fmt.Errorf("%w: Options.Keep works with a Mutex only", embed.ErrInvalidArgument)
	case o.Identity != "" && !identity:
		return fmt.Errorf("%w: Options.Identity works with a Mutex or a RWMutex only", embed.ErrInvalidArgument)
	}
	return nil
}
