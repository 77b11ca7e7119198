package keeper

import (
	"context"
	"crypto/rand"
	"time"

	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/engine/outbox"
	"github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/tree"
)

// Open opens a session. The caller has authenticated as the identities.
func (k *Keeper) Open(ctx context.Context, timeout time.Duration, isRemote bool, identities []tree.Identity) (*Session, error) {
	r := command.Request{Kind: command.RequestOpen, Timeout: timeout, Remote: isRemote, Identities: identities}
	if _, err := rand.Read(r.Password[:]); err != nil {
		return nil, err
	}
	var client *remote
	if isRemote {
		client = &remote{password: r.Password}
	}
	s := newSession(k, timeout, client, identities)
	opening := outbox.NewCall(nil, &r)
	opening.OnOutcome = func(call *outbox.Call) { k.opened(s, call) }
	if err := k.noteOpening(s, opening); err != nil {
		return nil, err
	}
	if _, err := k.home.Submit(opening); err != nil {
		return nil, err
	}
	if err := k.home.Wait(ctx, opening, k.options.RequestTimeout); err != nil {
		k.abandon(s)
		return nil, err
	}
	return s, nil
}

// noteOpening records the call that is about to open a session.
func (k *Keeper) noteOpening(s *Session, call *outbox.Call) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.closedErrLocked(); err != nil {
		return err
	}
	k.mu.opening[s] = call
	return nil
}

// opened handles the outcome of the call that opens a session. If the call was applied, opened runs
// on the apply goroutine, so no later entry can concern the session before the keeper has it.
func (k *Keeper) opened(s *Session, call *outbox.Call) {
	if call.Err == nil {
		k.add(s, tree.SessionID(call.Zxid), call.Sent, call.Offset)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.mu.opening, s)
}

// add adds a session. The batch that opened it was first sent at sent, when the wall clock had that
// offset. If the opener has given up, add closes the session again.
func (k *Keeper) add(s *Session, id tree.SessionID, sent, offset time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	s.id = id
	s.life = *session.NewLife(s.timeout, sent)
	if k.mu.closed != nil {
		k.endLocked(s, session.Closed, k.mu.closed)
		return
	}
	if s.remote != nil {
		s.remote.attached = tree.Zxid(id)
		k.attachLocked(s, sent)
	} else {
		k.keepLocked(s, offset)
	}
	if s.abandoned || k.mu.closing {
		k.closeLocked(s)
		k.home.Signal()
	}
}

// keepLocked adds an in-process session.
func (k *Keeper) keepLocked(s *Session, offset time.Duration) {
	if len(k.mu.sessions) == 0 {
		k.mu.offset = offset // a change of the clocks while there was no session is no jump
	}
	k.mu.sessions[s.id] = s
	k.mu.timeouts.add(s.timeout)
	k.mu.calm.narrow(s.life.Deadline(), k.mu.offset, session.Margin(s.timeout))
	k.Signal()
}

// abandon closes a session whose opener gave up: now if it is open, otherwise as soon as it is.
func (k *Keeper) abandon(s *Session) {
	k.mu.Lock()
	s.abandoned = true
	if s.id != 0 && s.end == nil {
		k.closeLocked(s)
	}
	k.mu.Unlock()
	k.home.Pump()
}
