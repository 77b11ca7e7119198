package lock

import (
	"fmt"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/internal/queue"
)

// Options say how a lock is taken. The zero value is usable; what is wrong with them is told by the call that takes the lock:
// embed.ErrInvalidArgument.
type Options struct {
	// Note is shown to who asks for Holders and Waiters: it is the data of the contender's znode, at most Config.MaxDataSize:
	// embed.ErrTooLarge.
	Note string

	// Delay keeps a lock taken when its holder did not give it up but was lost: its session expired or was Suspended, or its process died. Only
	// then, for at least so long, nobody else is granted it, so that what the holder had sent elsewhere has the time to arrive. Whole
	// milliseconds, less than 2^40, or else embed.ErrInvalidTTL; zero is none. It is counted anew by each contender whose turn it would be, and by the ensemble, which looks once a
	// minute, if there is none. (Consul's lock-delay.)
	Delay time.Duration

	// Identity may take the lock again at once during Delay, from whatever session, ahead of all who wait; of a Mutex and a RWMutex only, and as
	// what it was, reader or writer. The delay is over with the release of that Hold; until there is one whatever ends the attempt, and
	// its session's Close, has it begin anew. Empty: nobody may. Not with Keep.
	Identity string

	// Keep, of a Mutex only, leaves the lock with this Mutex after a release, so that it is taken again without a commit: see the package
	// documentation. A contender of somebody else is let in when it has waited for Keep, and the Hold of that moment has ended. Zero: it
	// is given up at each release. What is kept is a znode and a goroutine until somebody wants it, Mutex.Forget, or the session's end; if its
	// session expires, or its process ends, there is the Delay as if somebody held it.
	Keep time.Duration
}

// entry returns how a contender of a kind enters.
func (o *Options) entry(k queue.Kind) queue.Entry {
	return queue.Entry{Kind: k, Data: note(o.Note), Delay: o.Delay, Identity: o.Identity}
}

func note(text string) []byte {
	if text == "" {
		return nil
	}
	return []byte(text)
}

// check says what is wrong with options of a lock that knows some of them.
func (o *Options) check(identity, keep bool) error {
	switch {
	case o.Delay < 0 || o.Delay%time.Millisecond != 0:
		return fmt.Errorf("%w: %w: Options.Delay is %v, not whole milliseconds", embed.ErrInvalidArgument, embed.ErrInvalidTTL, o.Delay)
	case o.Keep < 0:
		return fmt.Errorf("%w: Options.Keep is %v, less than zero", embed.ErrInvalidArgument, o.Keep)
	case o.Keep > 0 && o.Identity != "":
		return fmt.Errorf("%w: Options.Keep and Options.Identity: a lock that is kept is nobody else's to come back to", embed.ErrInvalidArgument)
	case o.Keep > 0 && !keep:
		return fmt.Errorf("%w: Options.Keep is for a Mutex", embed.ErrInvalidArgument)
	case o.Identity != "" && !identity:
		return fmt.Errorf("%w: Options.Identity is for a Mutex and a RWMutex", embed.ErrInvalidArgument)
	}
	return nil
}
