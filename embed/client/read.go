package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/vivarium-go/vivarium/embed/internal/native"
	"github.com/vivarium-go/vivarium/engine"
	"github.com/vivarium-go/vivarium/internal/wire"
	"github.com/vivarium-go/vivarium/tree"
)

// What a session reads, from the member that it is connected to.

func (s *session) Get(ctx context.Context, path string) ([]byte, tree.Stat, error) {
	r, err := s.look(ctx, pathCall(wire.OpGetData, path))
	if err != nil {
		return nil, tree.Stat{}, err
	}
	return r.Data, native.FromStat(&r.Stat), nil
}

func (s *session) Exists(ctx context.Context, path string) (tree.Stat, bool, error) {
	r, err := s.look(ctx, pathCall(wire.OpExists, path))
	switch err {
	case nil:
		return native.FromStat(&r.Stat), true, nil
	case tree.ErrNoNode:
		return tree.Stat{}, false, nil
	}
	return tree.Stat{}, false, err
}

func (s *session) Children(ctx context.Context, path string) ([]string, tree.Stat, error) {
	r, err := s.look(ctx, pathCall(wire.OpGetChildren2, path))
	if err != nil {
		return nil, tree.Stat{}, err
	}
	return r.Names, native.FromStat(&r.Stat), nil
}

func (s *session) ACL(ctx context.Context, path string) ([]tree.ACL, tree.Stat, error) {
	r, err := s.look(ctx, pathCall(wire.OpGetACL, path))
	if err != nil {
		return nil, tree.Stat{}, err
	}
	return native.FromACL(r.ACL), native.FromStat(&r.Stat), nil
}

func (s *session) Descendants(ctx context.Context, path string) (int, error) {
	r, err := s.look(ctx, pathCall(wire.OpGetAllChildrenNumber, path))
	if err != nil {
		return 0, err
	}
	return int(r.Count), nil
}

func (s *session) Ephemerals(ctx context.Context, prefix string) ([]string, error) {
	r, err := s.look(ctx, pathCall(wire.OpGetEphemerals, prefix))
	if err != nil {
		return nil, err
	}
	return r.Names, nil
}

func (s *session) Page(ctx context.Context, path, after string, n int) ([]string, error) {
	r, err := s.look(ctx, nativeCall(wire.Native{Kind: wire.NativePage, Path: path, After: after, Count: int32(min(n, 1<<30))}))
	if err != nil {
		return nil, err
	}
	return r.Native.Names, nil
}

func (s *session) Before(ctx context.Context, path string, match ...string) (string, bool, error) {
	r, err := s.look(ctx, nativeCall(wire.Native{Kind: wire.NativeBefore, Path: path, Names: match}))
	if err != nil || !r.Native.Flag || len(r.Native.Names) != 1 {
		return "", false, err
	}
	return r.Native.Names[0], true, nil
}

const (
	// walkMax bounds the bytes that a Walk gathers. Beyond it the Walk is refused.
	walkMax = 1 << 30
	// znodeBytes is what a znode takes besides its path and data.
	znodeBytes = 128
)

// errWalk names no smaller walk: recipes and views walk too, and their callers cannot choose.
var errWalk = fmt.Errorf("%w: a client gathers at most %d MiB of a subtree. A member has no such bound; "+
	"Page and Get read the znodes one by one, but not all at one zxid", engine.ErrTooLarge, walkMax>>20)

// Walk gathers everything before it calls fn. If the connection breaks meanwhile, what came until
// then cannot be completed, because the next connection shows another zxid.
func (s *session) Walk(ctx context.Context, path string, depth int, fn func(at tree.Zxid, path string, f tree.Found) bool) (tree.Zxid, error) {
	at, znodes, err := s.gather(ctx, path, depth)
	if err != nil {
		return at, err
	}
	for i := range znodes {
		z := &znodes[i]
		if err := ctx.Err(); err != nil {
			return at, err
		}
		if !fn(at, z.Path, tree.Detached(z.Data, native.FromStat(&z.Stat))) {
			break
		}
	}
	return at, nil
}

// gather reads a walk, again and again if it breaks. A server keeps one walk of a session at a
// time, so other callers wait.
func (s *session) gather(ctx context.Context, path string, depth int) (at tree.Zxid, znodes []wire.NativeZnode, err error) {
	select {
	case s.walk <- struct{}{}:
	case <-s.alive.Done():
		return 0, nil, s.Err()
	case <-ctx.Done():
		return 0, nil, ctx.Err()
	}
	defer func() { <-s.walk }()
	for breaks := 0; ; breaks++ {
		at, znodes, err = s.portions(ctx, path, depth)
		broke := len(znodes) > 0 && errors.Is(err, engine.ErrUnavailable)
		if !broke || breaks == breaksMax || ctx.Err() != nil {
			return at, znodes, err
		}
	}
}

// portions reads a walk once. With an error it returns what came before.
func (s *session) portions(ctx context.Context, path string, depth int) (at tree.Zxid, znodes []wire.NativeZnode, err error) {
	next := wire.Native{Kind: wire.NativeWalk, Path: path, Count: int32(min(depth, 1<<30))}
	for size := 0; size < walkMax; {
		c := nativeCall(next)
		r, err := s.look(ctx, c)
		switch {
		case errors.Is(err, tree.ErrNoNode), errors.Is(err, tree.ErrNoAuth):
			return tree.Zxid(c.reply.Native.Zxid), znodes, err
		case err != nil:
			return 0, znodes, err
		}
		for i := range r.Native.Znodes {
			z := &r.Native.Znodes[i]
			size += znodeBytes + len(z.Path) + len(z.Data)
			next.After = z.Path
		}
		znodes = append(znodes, r.Native.Znodes...)
		if next.Zxid = r.Native.Zxid; !r.Native.Flag {
			return tree.Zxid(next.Zxid), znodes, nil
		}
	}
	return 0, nil, errWalk
}

func (s *session) Member(ctx context.Context, id tree.SessionID) (engine.MemberID, error) {
	r, err := s.look(ctx, nativeCall(wire.Native{Kind: wire.NativeMember, Zxid: int64(id)}))
	if err != nil {
		return 0, err
	}
	return engine.MemberID(r.Native.Zxid), nil
}

func (s *session) Sync(ctx context.Context, path string) (tree.Zxid, error) {
	r, err := s.ask(ctx, nativeCall(wire.Native{Kind: wire.NativeSync, Path: path}))
	if err != nil {
		return 0, err
	}
	return tree.Zxid(r.Native.Zxid), nil
}

// The server reads nothing else of the session while it waits for a zxid. So it does that for one
// caller, and for awaitSlice at a time. The others ask whether theirs is shown already, and pause
// between two questions: for as long, or for awaitShare times their number.
const (
	awaitSlice = 20 * time.Millisecond
	awaitShare = 200 * time.Microsecond
)

func (s *session) Await(ctx context.Context, path string, z tree.Zxid) error {
	bounded, cancel := s.bounded(ctx)
	defer cancel()
	s.awaiting.Add(1)
	defer s.awaiting.Add(-1)
	for {
		shown, err := s.awaitOnce(bounded, path, z)
		if bounded.Err() != nil && errors.Is(err, bounded.Err()) {
			return s.late(ctx)
		}
		if err != nil || shown {
			return err
		}
	}
}

// awaitOnce waits for one slice, at the server or here.
func (s *session) awaitOnce(ctx context.Context, path string, z tree.Zxid) (shown bool, err error) {
	select {
	case s.await <- struct{}{}:
		defer func() { <-s.await }()
		return s.isShown(ctx, path, z, awaitSlice)
	default:
	}
	if shown, err = s.isShown(ctx, path, z, 0); shown || err != nil {
		return shown, err
	}
	pause := time.NewTimer(max(awaitSlice, awaitShare*time.Duration(s.awaiting.Load())))
	defer pause.Stop()
	select {
	case <-pause.C:
		return false, nil
	case <-s.alive.Done():
		return false, s.Err()
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// isShown asks whether the server shows a zxid, or does so within a time.
func (s *session) isShown(
	ctx context.Context, path string, z tree.Zxid, within time.Duration,
) (bool, error) {
	q := wire.Native{Kind: wire.NativeAwait, Path: path, Zxid: int64(z)}
	q.Count = int32(within.Milliseconds())
	r, err := s.look(ctx, nativeCall(q))
	if err != nil {
		return false, err
	}
	return r.Native.Flag, nil
}
