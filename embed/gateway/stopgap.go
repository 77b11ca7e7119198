package gateway

import (
	"context"
	"crypto/rand"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/engine"
	"github.com/vivarium-go/vivarium/tree"
)

// A stopgap stands for a remote client's session until the engine has those. It is made of sessions of this process: they end with it,
// cannot be resumed, and have an identity for good. So there is one more of them after each Identify, and what is ephemeral
// belongs to the one that was the newest.
type stopgap struct {
	*engine.Session // the newest; the connection's reader alone replaces and uses it
	engine          *engine.Engine
	first           *engine.Session // whose id the client knows
	all             atomic.Pointer[[]*engine.Session]
	password        [16]byte
	heard           atomic.Int64 // since start
	start           time.Time
	mu              sync.Mutex // guards silence
	silence         *time.Timer
}

func openStopgap(ctx context.Context, e *engine.Engine, timeout time.Duration, who []tree.Identity) (*stopgap, error) {
	first, err := e.OpenSession(ctx, timeout, who...)
	if err != nil {
		return nil, err
	}
	s := &stopgap{Session: first, engine: e, first: first, start: time.Now()}
	s.all.Store(&[]*engine.Session{first})
	if _, err := rand.Read(s.password[:]); err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.silence = time.AfterFunc(first.Timeout(), s.expire)
	s.mu.Unlock()
	return s, nil
}

// expire closes the sessions if their client has said nothing for the timeout.
func (s *stopgap) expire() {
	left := s.first.Timeout() - (time.Since(s.start) - time.Duration(s.heard.Load()))
	if left > 0 && s.first.Err() == nil {
		s.mu.Lock()
		s.silence.Reset(left)
		s.mu.Unlock()
		return
	}
	_ = s.Close()
}

func (s *stopgap) ID() tree.SessionID     { return s.first.ID() }
func (s *stopgap) Timeout() time.Duration { return s.first.Timeout() }
func (s *stopgap) Password() [16]byte     { return s.password }
func (s *stopgap) Heard()                 { s.heard.Store(int64(time.Since(s.start))) }

func (s *stopgap) State() (embed.State, <-chan struct{}) { return s.first.State() }

func (s *stopgap) Identify(ctx context.Context, who ...tree.Identity) error {
	newest, err := s.engine.OpenSession(ctx, s.Timeout(), who...)
	if err != nil {
		return err
	}
	all := append(slices.Clone(*s.all.Load()), newest)
	s.all.Store(&all)
	s.Session = newest
	return nil
}

func (s *stopgap) Ephemerals(ctx context.Context, prefix string) ([]string, error) {
	var paths []string
	for _, one := range *s.all.Load() {
		more, err := one.Ephemerals(ctx, prefix)
		if err != nil {
			return nil, err
		}
		paths = append(paths, more...)
	}
	slices.Sort(paths)
	return paths, nil
}

func (s *stopgap) Close() error {
	s.mu.Lock()
	s.silence.Stop()
	s.mu.Unlock()
	var err error
	for _, one := range slices.Backward(*s.all.Load()) {
		if e := one.Close(); e != nil {
			err = e
		}
	}
	return err
}
