package embed

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"syscall"
	"time"

	"github.com/vivarium-go/vivarium/engine"
)

// Supervise runs a node, and starts it again if it fails for a cause that passes when somebody
// mends the disk. It calls fn with each node that it has started, one after the other, and does not
// wait for a quorum before.
//
//	err := embed.Supervise(ctx, cfg, func(ctx context.Context, node *embed.Node) error {
//		return election.Run(ctx, node, "/elections/reports", nil, report)
//	})
//
// The ctx of fn ends when its node is over, or when the ctx of Supervise ends. Then fn must return,
// because Supervise waits for it. What fn has made of the node ends with the node: sessions, holds,
// gateways. Supervise does not recover a panic of fn.
//
// When fn returns and its node has not failed, that is the end. Supervise calls Node.Shutdown,
// which Config.RequestTimeout bounds, and returns the error of fn, joined with that of the
// Shutdown. If fn has closed the node itself, perhaps with more time, only the error of fn counts.
//
// When fn returns and its node has failed, the error of fn does not count, and the cause decides:
//
//   - No room, no quota or no file descriptor is left, an I/O error, or a file system that has
//     become read-only: Supervise waits, and calls Start again. A Start that fails for such a cause
//     is followed by another wait, the first Start too.
//   - Anything else is returned at once, matching ErrFailed and the cause: a member that was
//     removed or superseded or is refused, files that somebody removed, and a failed fsync. After
//     a failed fsync, the kernel may show data that are on no disk. Mount the volume again before
//     a Start.
//
// Likewise Supervise returns any other error of Start at once: an invalid Config, a port or
// directory in use, a damaged directory. A file system that is read-only before any node has run
// is one of them. If a node cannot be closed whole, because the disk hangs, Supervise returns
// that.
//
// Once a node has run, Supervise starts only on the same directory. If Dir is empty, because its
// volume is not mounted while it is mended, Supervise waits and founds nothing there. It returns if
// Dir has the data of another node.
//
// The first wait is a second, and each further one twice as long, up to a minute. Up to half of
// each wait is left out at random. After a node that ran for five minutes, they begin anew. The log
// tells of each new cause, and Events.Restarting of each wait.
//
// If ctx ends while no fn runs, the error matches that of ctx. Nothing of a node is left then.
func Supervise(ctx context.Context, cfg Config, fn func(ctx context.Context, n *Node) error) error {
	if cfg.Dir != "" { // every start is on the directory of the first, wherever the process is then
		dir, err := filepath.Abs(cfg.Dir)
		if err != nil {
			return fmt.Errorf("config: Dir: %w", err)
		}
		cfg.Dir = dir
	}
	s := &supervisor{cfg: cfg, outlets: newOutlets(cfg), pause: restartFirst}
	defer func() { s.close(time.Now().Add(or(cfg.RequestTimeout, DefaultRequestTimeout))) }()
	for ctx.Err() == nil {
		again, err := s.run(ctx, fn)
		if !again {
			return err
		}
		if err := s.wait(ctx, err); err != nil {
			return err
		}
	}
	return ctx.Err()
}

const (
	restartFirst = time.Second     // the longest first wait
	restartMost  = time.Minute     // the longest wait
	restartWell  = 5 * time.Minute // a node that ran for so long was well
)

// A supervisor is one call of Supervise. One goroutine uses it.
type supervisor struct {
	cfg       Config
	outlets                 // of all nodes
	directory [16]byte      // the id of the directory of the last node; zero: there was none
	pause     time.Duration // the longest next wait
	told      string        // the cause that was logged last; empty: none since a node ran
}

// run starts a node and calls fn with it. The node is closed when run returns. again means that a
// mended disk ends err.
func (s *supervisor) run(ctx context.Context, fn func(context.Context, *Node) error) (again bool, err error) {
	n, err := start(s.cfg, s)
	if err != nil {
		ran := s.directory != [16]byte{}
		return engine.Mendable(err) && (ran || !errors.Is(err, syscall.EROFS)), err
	}
	began := time.Now()
	s.directory, s.told = n.in().Engine.Directory(), ""
	err = n.lend(ctx, fn)
	cause := n.Err()
	if cause == nil {
		return false, errors.Join(err, n.end(ctx))
	}
	if time.Since(began) >= restartWell {
		s.pause = restartFirst
	}
	err = n.over()
	if left := n.Close(); left != nil {
		return false, errors.Join(err, left)
	}
	return engine.Mendable(cause), err
}

// wait waits before the next start. It returns an error if ctx ends first.
func (s *supervisor) wait(ctx context.Context, cause error) error {
	wait := s.pause/2 + rand.N(s.pause/2)
	s.pause = min(2*s.pause, restartMost)
	if text := cause.Error(); text != s.told {
		s.told = text
		s.log.Logger().Warn("waiting for the disk to be mended", "dir", s.cfg.Dir, "cause", cause)
	}
	s.events.restarting(cause, wait)
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w while waiting for the disk to be mended: %w", ctx.Err(), cause)
	}
}

// lend calls fn with the node and a ctx that ends when the node is over. If ctx has ended already,
// it calls nothing.
func (n *Node) lend(ctx context.Context, fn func(context.Context, *Node) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-n.Done():
			cancel(n.over())
		case <-ctx.Done():
		}
	}()
	return fn(ctx, n)
}

// end shuts a node down, unless it is closed already.
func (n *Node) end(ctx context.Context) error {
	select {
	case <-n.Done():
		return n.Close() // which may be under way
	default:
		return n.Shutdown(context.WithoutCancel(ctx))
	}
}

// over says why a node is over that is over.
func (n *Node) over() error {
	if cause := n.Err(); cause != nil {
		return fmt.Errorf("%w: %w", ErrFailed, cause)
	}
	return ErrClosed
}
