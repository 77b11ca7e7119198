package admin

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/internal/rank"
)

const (
	sessionsMax = 16          // sessions at a time
	sessionIdle = time.Minute // after which one that nobody uses is closed
)

// lending lends sessions to requests, one for each set of identities.
type lending struct {
	node embed.Opener

	mu  rank.Mutex[rank.Lending]
	all map[string]*lent // by identities; guarded by mu
}

// A lent session belongs to all requests with the same identities.
type lent struct {
	opened  chan struct{} // closed when the two below are set
	session *embed.Session
	err     error

	users int         // guarded by lending.mu
	idle  *time.Timer // runs while there are no users; guarded by lending.mu
}

func newLending(n embed.Opener) *lending { return &lending{node: n, all: make(map[string]*lent)} }

// take returns a session with the given identities. The caller must call give when it is done.
func (l *lending) take(ctx context.Context, auth []embed.Auth) (s *embed.Session, give func(), err error) {
	key := keyOf(auth)
	e, err := l.enter(key, auth)
	if err != nil {
		return nil, nil, err
	}
	give = func() { l.leave(key, e) }
	select {
	case <-e.opened:
		err = e.err
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err != nil {
		give()
		return nil, nil, err
	}
	return e.session, give, nil
}

// enter returns the session of a key with one more user. It begins to open one if there is none.
func (l *lending) enter(key string, auth []embed.Auth) (*lent, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.all[key]; e != nil && !e.isOver() {
		e.users++
		if e.idle != nil {
			e.idle.Stop() // if it is too late, shut sees the user
		}
		return e, nil
	}
	delete(l.all, key) // who uses it still has it
	if len(l.all) >= sessionsMax && !l.dropIdleLocked() {
		return nil, fmt.Errorf("%w: %d sessions are in use", errBusy, sessionsMax)
	}
	e := &lent{opened: make(chan struct{}), users: 1}
	l.all[key] = e
	go func() {
		defer close(e.opened)
		e.session, e.err = l.node.NewSession(context.Background(), embed.SessionOptions{Auth: auth}) // bounded by Config.RequestTimeout
	}()
	return e, nil
}

// isOver reports whether an entry has no session, and none is being opened.
func (e *lent) isOver() bool {
	select {
	case <-e.opened:
		return e.err != nil || e.session.Err() != nil
	default:
		return false
	}
}

// leave takes one user from a session. The last one starts the time after which it is closed.
func (l *lending) leave(key string, e *lent) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e.users--
	switch {
	case e.users > 0:
	case l.all[key] != e:
		go e.close()
	default:
		e.idle = time.AfterFunc(sessionIdle, func() { l.shut(key, e) })
	}
}

// shut closes a session that nobody uses.
func (l *lending) shut(key string, e *lent) {
	l.mu.Lock()
	isIdle := l.all[key] == e && e.users == 0
	if isIdle {
		delete(l.all, key)
	}
	l.mu.Unlock()
	if isIdle {
		e.close()
	}
}

// dropIdleLocked makes room by closing a session that nobody uses, and reports whether there was
// one.
func (l *lending) dropIdleLocked() bool {
	for key, e := range l.all {
		if e.users == 0 {
			e.idle.Stop()
			delete(l.all, key)
			go e.close()
			return true
		}
	}
	return false
}

// close closes the session of an entry that nobody can find any more. An error means that it ends
// at its timeout.
func (e *lent) close() {
	<-e.opened
	if e.session != nil {
		_ = e.session.Close()
	}
}

// keyOf returns what is equal for equal identities only.
func keyOf(auth []embed.Auth) string {
	var b strings.Builder
	for _, a := range auth {
		b.WriteString(strconv.Quote(a.Scheme))
		b.WriteString(strconv.Quote(string(a.Credential)))
	}
	return b.String()
}
