package value

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/vivarium-go/vivarium/embed"
)

// A Sequence gives out ids that nobody else gets, from zero on. It takes them from the ensemble in
// blocks, one commit for each. It fetches the next block when it has given out half of the present
// one, so that a caller seldom waits.
//
// Ids are unique, however many Sequences of the path there are, over restarts, failures and the
// loss of sessions. They are not in order between members, and those of a block are lost that are
// not given out before Close or a crash, or that were fetched with an unknown outcome. The znode
// must not be deleted or set back.
//
// A Sequence opens sessions of its own. Its methods may be called by any number of goroutines.
// NewSequence makes one; the zero Sequence cannot be used.
type Sequence struct {
	// Immutable.
	from embed.Opener
	path string
	size int64 // of a block
	life context.Context
	end  context.CancelFunc

	present  atomic.Pointer[block] // never nil
	fetching atomic.Pointer[fetch] // what follows the present block; nil if nobody has asked for it

	session *embed.Session // owned by the fetch, and by Close in the end; nil before the first
	closing sync.Once
	closed  error // of Close
}

// A block is a range of ids.
type block struct {
	first, size int64
	taken       atomic.Int64 // may be more than size
}

// A fetch is a block on its way.
type fetch struct {
	done  chan struct{}
	block *block // after done
	err   error  // after done, if there is no block
}

// NewSequence returns a Sequence of the ids that the znode at a path counts, in blocks of so many.
// It sends nothing: the first Next does. If block is not positive, Next fails with
// embed.ErrInvalidArgument. embed.OpenerWith gives the sessions a timeout, credentials or a root.
func NewSequence(from embed.Opener, path string, block int64) *Sequence {
	s := &Sequence{from: from, path: path, size: block}
	s.life, s.end = context.WithCancel(context.Background())
	s.present.Store(exhausted())
	return s
}

func exhausted() *block { return new(block) }

// Next returns an id. It waits only if no id is left, while a block is fetched.
//
// After an error no id was given out, and the next call tries again. Errors: the ctx's;
// embed.ErrUnavailable if no quorum answers within Config.RequestTimeout; embed.ErrOverflow at the
// end of the numbers; embed.ErrReleased after Close; embed.ErrClosed or embed.ErrFailed if the node
// ends; and those of Counter.Add except embed.ErrUnknownOutcome.
func (s *Sequence) Next(ctx context.Context) (int64, error) {
	for {
		b := s.present.Load()
		if nth := b.taken.Add(1) - 1; nth < b.size {
			if nth == b.size/2 {
				s.fetch()
			}
			return b.first + nth, nil
		}
		if err := s.advance(ctx, b); err != nil {
			return 0, wrap("next id", s.path, err)
		}
	}
}

// advance waits until another block than b is the present one.
func (s *Sequence) advance(ctx context.Context, b *block) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.size <= 0 {
		return fmt.Errorf("%w: a block of %d ids", embed.ErrInvalidArgument, s.size)
	}
	f := s.fetch()
	select {
	case <-f.done:
	case <-ctx.Done():
		return ctx.Err()
	}
	if f.err != nil {
		return f.err
	}
	// Only the caller that replaces the exhausted block may forget the fetch: by the time that
	// another one gets here, it may be a later fetch.
	if s.present.CompareAndSwap(b, f.block) {
		s.fetching.CompareAndSwap(f, nil)
	}
	return nil
}

// fetch returns the fetch of the next block. It begins one if there is none.
func (s *Sequence) fetch() *fetch {
	for {
		if f := s.fetching.Load(); f != nil {
			return f
		}
		f := &fetch{done: make(chan struct{})}
		if s.fetching.CompareAndSwap(nil, f) {
			go s.fetchLoop(f)
			return f
		}
	}
}

// fetchLoop fetches a block. It tries again if the session turns out to have ended.
func (s *Sequence) fetchLoop(f *fetch) {
	defer close(f.done)
	for {
		f.block, f.err = s.add()
		if f.err == nil {
			return
		}
		if s.session == nil || s.session.Err() == nil || s.life.Err() != nil {
			break
		}
	}
	switch {
	case s.life.Err() != nil:
		f.err = embed.ErrReleased
	case errors.Is(f.err, embed.ErrUnknownOutcome):
		f.err = fmt.Errorf("%w: perhaps %d ids are lost", embed.ErrUnavailable, s.size) // nobody has got them
	}
	s.fetching.CompareAndSwap(f, nil)
}

// add takes a block from the ensemble.
func (s *Sequence) add() (*block, error) {
	if s.session == nil || s.session.Err() != nil {
		session, err := s.from.NewSession(s.life, embed.SessionOptions{})
		if err != nil {
			s.session = nil
			return nil, err
		}
		s.session = session
	}
	sum, err := NewCounter(s.session, s.path, embed.Int64).Add(s.life, s.size)
	if err != nil {
		return nil, err
	}
	return &block{first: sum - s.size, size: s.size}, nil
}

// Close ends the Sequence. The ids that it has left are lost. Close waits until its session has
// ended, for at most Config.RequestTimeout. It is idempotent, and returns the error of
// embed.Session.Close.
func (s *Sequence) Close() error {
	s.closing.Do(func() {
		s.end()
		over := &fetch{done: make(chan struct{}), err: embed.ErrReleased}
		close(over.done)
		if last := s.fetching.Swap(over); last != nil { // from now on nobody begins another
			<-last.done
		}
		s.present.Store(exhausted())
		if s.session != nil {
			s.closed = s.session.Close()
		}
	})
	return s.closed
}
