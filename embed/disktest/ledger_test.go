package disktest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
)

// A ledger is what callers were told of their writes. They create and delete znodes below /w, each
// once, whose data follow from their names.
type ledger struct {
	writes, bytes atomic.Int64 // acknowledged

	mu      sync.Mutex
	paths   presences
	writing int  // calls under way
	paused  bool // no call begins
	// changed is of writing and paused. It is no RWMutex: in virtual time, a goroutine that waits
	// for one stops the clock.
	changed *sync.Cond
}

// presences say what must be true of paths. A path that is not mentioned must be absent.
type presences map[string]presence

type presence uint8

const (
	absent presence = iota
	present
	either
)

func newLedger() *ledger {
	l := &ledger{paths: make(presences)}
	l.changed = sync.NewCond(&l.mu)
	return l
}

// pause waits until nobody writes, and keeps it so until resume.
func (l *ledger) pause() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.paused = true; l.writing > 0; {
		l.changed.Wait()
	}
}

func (l *ledger) resume() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.paused = false
	l.changed.Broadcast()
}

// told returns what must be true now.
func (l *ledger) told() presences {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.paths)
}

// dataOf returns the data of a znode with this name. The last part of the name is the size.
func dataOf(path string) []byte {
	size, _ := strconv.Atoi(path[strings.LastIndexByte(path, '-')+1:])
	data := make([]byte, size)
	rng := rand.NewChaCha8(sha256.Sum256([]byte(path)))
	rng.Read(data)
	return data
}

// write makes a write that leaves the path in the given state.
func (l *ledger) write(path string, then presence, call func() error) error {
	l.mu.Lock()
	for l.paused {
		l.changed.Wait()
	}
	l.writing++
	before := l.paths[path]
	l.paths[path] = either
	l.mu.Unlock()
	err := call()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.writing--
	l.changed.Broadcast()
	switch {
	case err == nil:
		l.paths[path] = then
		l.writes.Add(1)
	case !errors.Is(err, embed.ErrUnknownOutcome):
		l.paths[path] = before
	}
	return err
}

// create creates a znode of the given size under a name that was never used.
func (l *ledger) create(ctx context.Context, s *embed.Session, name string, size int) (path string, err error) {
	path = fmt.Sprintf("/w/%s-%d", name, size)
	err = l.write(path, present, func() error {
		_, err := s.Create(ctx, path, dataOf(path), embed.Persistent)
		return err
	})
	if err == nil {
		l.bytes.Add(int64(size))
	}
	return path, err
}

// remove deletes a znode that was created.
func (l *ledger) remove(ctx context.Context, s *embed.Session, path string) {
	_ = l.write(path, absent, func() error { return s.Delete(ctx, path, embed.AnyVersion) })
}

// keeps is how many znodes of one writer exist at a time.
const keeps = 10

// writeUntil writes on a node until stop is closed or the node has ended. It pauses before each
// write, because virtual time passes only while everybody waits for it.
func (l *ledger) writeUntil(stop <-chan struct{}, n *embed.Node, who string, size func() int) {
	var s *embed.Session
	var own []string
	for i := 0; ; i++ {
		select {
		case <-stop:
			return
		case <-n.Done():
			return
		case <-time.After(5 * time.Millisecond):
		}
		if s == nil || s.Err() != nil {
			var err error
			if s, err = n.NewSession(context.Background(), lasting); err != nil {
				s = nil
				continue
			}
		}
		path, err := l.create(context.Background(), s, fmt.Sprintf("%s-%d", who, i), size())
		if err == nil {
			own = append(own, path)
		}
		if len(own) > keeps {
			l.remove(context.Background(), s, own[0])
			own = own[1:]
		}
	}
}

// check compares what a session sees with what must be. It returns an error if the session cannot
// see.
func (want presences) check(ctx context.Context, t *testing.T, s *embed.Session) error {
	t.Helper()
	if _, err := s.Sync(ctx, "/"); err != nil {
		return err
	}
	names, _, err := s.Children(ctx, "/w")
	if err != nil {
		return err
	}
	there := make(map[string]bool)
	for _, name := range names {
		path := "/w/" + name
		there[path] = true
		data, _, err := s.Get(ctx, path)
		if err != nil {
			return err
		}
		if !bytes.Equal(data, dataOf(path)) {
			t.Errorf("%s holds something else", path)
		}
		if want[path] == absent {
			t.Errorf("%s is there, though its create was refused or its delete acknowledged", path)
		}
	}
	for path, p := range want {
		if p == present && !there[path] {
			t.Errorf("%s was acknowledged and is lost", path)
		}
	}
	return nil
}

// tidy removes znodes that may or may not exist, and forgets those that are gone. It does not
// forget a znode that is missing now, because its create may still arrive. Nobody may write
// meanwhile.
func (l *ledger) tidy(ctx context.Context, t *testing.T, n *embed.Node) {
	t.Helper()
	s, err := n.NewSession(ctx, lasting)
	must(t, err)
	defer s.Close()
	left := make(presences)
	for path, p := range l.told() {
		if p == either {
			err := s.Delete(ctx, path, embed.AnyVersion)
			if err == nil {
				p = absent
			} else if !errors.Is(err, embed.ErrNoNode) {
				t.Errorf("%s: %v", path, err)
			}
		}
		if p != absent {
			left[path] = p
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.paths = left
}
