package keeper

import (
	"cmp"
	"context"
	"errors"
	"maps"

	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/engine/outbox"
	"github.com/vivarium-go/vivarium/tree"
	"golang.org/x/sync/errgroup"
)

// introduce makes a shard know the session, however long that takes: see replica/purger.go. Then
// the calls that are parked there go on, judged by the identities. They are refused if the session
// ends before, or if there is no room for the calls that introduce it.
func (s *Session) introduce(o *outbox.Outbox, identities []tree.Identity) {
	ctx := s.Context()
	for {
		err := s.introduceOnce(ctx, o, identities)
		switch {
		case err == nil && o.Introduced(s.Owner):
			return
		case ctx.Err() != nil:
			err = context.Cause(ctx)
		case err == nil:
			err = s.Live() // the session ended; its ctx ends in a moment
		case errors.Is(err, outbox.ErrUnknownOutcome):
			continue // introducing it again is harmless
		}
		o.NotIntroduced(s.Owner, err)
		return
	}
}

// introduceOnce has the home shard record that the session uses a shard, and then introduces the
// session there.
func (s *Session) introduceOnce(ctx context.Context, o *outbox.Outbox, identities []tree.Identity) error {
	home := s.keeper.home
	noted := outbox.NewCall(s.Owner, &command.Request{Kind: command.RequestAddShard, Session: s.id, Shard: uint32(o.Shard)})
	if _, err := home.Submit(noted); err != nil {
		return err
	}
	if err := home.Wait(ctx, noted, outbox.Forever); err != nil {
		return err
	}
	return s.keeper.introduce(ctx, s, o, identities)
}

// introduceToAll introduces the session to shards. It returns the first error.
func (s *Session) introduceToAll(ctx context.Context, shards []uint32) error {
	var all errgroup.Group
	for _, shard := range shards {
		all.Go(func() error { return s.introduceTo(ctx, s.keeper.outboxes[shard-1]) })
	}
	err := all.Wait()
	return cmp.Or(s.Live(), err) // it may be attached elsewhere by now
}

// introduceTo introduces the session to one shard.
func (s *Session) introduceTo(ctx context.Context, o *outbox.Outbox) error {
	err := s.keeper.introduce(ctx, s, o, s.Identities())
	if err == nil && !o.Introduced(s.Owner) {
		return s.Err()
	}
	return err
}

// introduce introduces a session to a shard with the given identities, unless the session has
// ended. ctx must end no later than the session.
func (k *Keeper) introduce(ctx context.Context, s *Session, o *outbox.Outbox, identities []tree.Identity) error {
	k.mu.Lock()
	if s.end != nil {
		k.mu.Unlock()
		return s.end
	}
	call := k.introduceLocked(s, o, identities, func(call *outbox.Call) bool { o.Queue(call); return true })
	k.mu.Unlock()
	o.Pump()
	return o.Wait(ctx, call, outbox.Forever)
}

// introduceLocked queues the call that introduces a session to a shard. It returns nil if queue
// refuses the call.
func (k *Keeper) introduceLocked(s *Session, o *outbox.Outbox, identities []tree.Identity, queue func(*outbox.Call) bool) *outbox.Call {
	call := outbox.NewCall(s.Owner, &command.Request{Kind: command.RequestIntroduce, Session: s.id, Timeout: s.timeout, Attached: s.Attached(), Identities: identities})
	if !queue(call) {
		return nil
	}
	maps.DeleteFunc(s.introducing, func(call *outbox.Call, _ *outbox.Outbox) bool { return call.IsDone() })
	if s.introducing == nil {
		s.introducing = make(map[*outbox.Call]*outbox.Outbox)
	}
	s.introducing[call] = o
	return call
}
