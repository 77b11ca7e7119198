package lock

import (
	"cmp"
	"container/list"
	"context"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/internal/queue"
	"github.com/vivarium-go/vivarium/internal/rank"
)

// KeptDefault is how many locks a Keys keeps if KeysOptions.Kept is zero.
const KeptDefault = 1000

// Keys is a lock for each of many keys, for example one for each customer or file. The lock of a
// key is a Mutex on the path that Path returns, so a Mutex there, and the clients that know its
// layout, exclude it.
//
// An unused key costs nothing, neither a znode nor memory. The first Lock of a key is one commit,
// which creates the znode at its path as a container together with the contender. The ensemble
// removes the container some time after the last contender has left.
//
// All methods may be called by any number of goroutines. A Keys must not be copied.
type Keys struct {
	// Immutable.
	session *embed.Session
	dir     string
	options KeysOptions

	mu struct {
		rank.Mutex[rank.Keys]
		keys map[string]*keptKey // by path; with Options.Keep only
		idle list.List           // those without calls, the one used last in front
	}
}

// KeysOptions are the settings of a Keys. The zero value is usable. A call that acquires a lock
// refuses wrong options with embed.ErrInvalidArgument.
type KeysOptions struct {
	// Lock are the options of each key's lock.
	Lock Options
	// Kept bounds how many locks Options.Keep keeps at a time; zero means KeptDefault. With one key
	// more, the one that was used least recently gives up its lock: at once, or when its present
	// Hold is released. A kept lock costs a znode and a goroutine.
	Kept int
	// Stripes is the number of locks that the keys share; zero means one lock for each key. A hash
	// of the key says which. Then two keys may exclude one another, so a caller that holds one key
	// must not wait for a second one: it may wait for itself. All callers must have the same
	// Stripes.
	Stripes int
}

func (o *KeysOptions) check() error {
	if o.Kept < 0 || o.Stripes < 0 {
		return fmt.Errorf("%w: KeysOptions.Kept is %d, Stripes is %d; neither may be negative",
			embed.ErrInvalidArgument, o.Kept, o.Stripes)
	}
	return nil
}

// A keptKey is the Mutex of a key, which may keep its lock.
type keptKey struct {
	// Immutable.
	path  string
	mutex *Mutex

	// Guarded by Keys.mu.
	calls int           // of Lock and TryLock that are under way
	idle  *list.Element // in Keys.mu.idle, or nil
}

// NewKeys returns the locks of keys below a directory, for a session. Nothing has to exist yet.
func NewKeys(s *embed.Session, dir string) *Keys {
	return &Keys{session: s, dir: dir}
}

// With returns the same locks with other options. It shares nothing that the other keeps.
func (k *Keys) With(o KeysOptions) *Keys {
	with := NewKeys(k.session, k.dir)
	with.options = o
	return with
}

// Lock is Mutex.Lock for a key, which may be any text. Other errors: embed.ErrInvalidPath for an
// empty key, and embed.ErrInvalidArgument for wrong KeysOptions.
func (k *Keys) Lock(ctx context.Context, key string) (*Hold, error) {
	return k.acquire(ctx, "lock", key, (*Mutex).Lock)
}

// TryLock is Mutex.TryLock for a key. Other errors are those of Lock.
func (k *Keys) TryLock(ctx context.Context, key string) (*Hold, error) {
	return k.acquire(ctx, "try lock", key, (*Mutex).TryLock)
}

// Path returns the path of a key's lock: for Held, Holders and Revoke, or for a Mutex. It is the
// directory and the key. Characters that no path can have, slashes and percent signs are escaped: a
// percent sign and two hexadecimal digits stand for each of their bytes. The keys "." and ".." are
// escaped too.
//
// With KeysOptions.Stripes, the last component is the decimal number of the stripe instead: the
// 64-bit FNV-1a hash of the key, modulo Stripes. For an empty key or directory, the path is empty.
func (k *Keys) Path(key string) string {
	if key == "" || k.dir == "" {
		return ""
	}
	if n := k.options.Stripes; n > 0 {
		h := fnv.New64a()
		_, _ = h.Write([]byte(key)) // never fails
		return queue.Child(k.dir, strconv.FormatUint(h.Sum64()%uint64(n), 10))
	}
	return queue.Child(k.dir, escape(key))
}

// escape returns a key as one component of a path. Different keys have different ones.
func escape(key string) string {
	if key == "." || key == ".." {
		return strings.Repeat("%2E", len(key))
	}
	var b strings.Builder
	for len(key) > 0 {
		r, n := utf8.DecodeRuneInString(key)
		if isPlain(r) {
			b.WriteString(key[:n])
		} else {
			for i := range n {
				fmt.Fprintf(&b, "%%%02X", key[i])
			}
		}
		key = key[n:]
	}
	return b.String()
}

// isPlain reports whether a character of a key is written as it is. utf8.RuneError, which stands
// for a byte that is not UTF-8, is not.
func isPlain(r rune) bool {
	switch {
	case r == '/', r == '%', r < ' ', r >= 0x7f && r <= 0x9f:
		return false
	}
	return r < 0xd800 || r > 0xf8ff && r < 0xfff0 // see embed.ErrInvalidPath
}

// An acquiring is one of the methods by which a Mutex is acquired.
type acquiring func(*Mutex, context.Context) (*Hold, error)

// acquire acquires the lock of a key.
func (k *Keys) acquire(ctx context.Context, op, key string, how acquiring) (*Hold, error) {
	path := k.Path(key)
	if err := k.options.check(); err != nil {
		return nil, wrap(op, path, err)
	}
	if k.options.Lock.Keep <= 0 {
		return how(NewMutex(k.session, path).With(k.options.Lock), ctx)
	}
	e := k.enter(path)
	defer k.leave(e)
	return how(e.mutex, ctx)
}

// enter returns the Mutex of a path for one call.
func (k *Keys) enter(path string) *keptKey {
	k.mu.Lock()
	defer k.mu.Unlock()
	e := k.mu.keys[path]
	if e == nil {
		e = &keptKey{path: path, mutex: NewMutex(k.session, path).With(k.options.Lock)}
		e.mutex.kept.gone = func() { k.gone(e) }
		if k.mu.keys == nil {
			k.mu.keys = make(map[string]*keptKey)
		}
		k.mu.keys[path] = e
	}
	e.calls++
	if e.idle != nil {
		k.mu.idle.Remove(e.idle)
		e.idle = nil
	}
	return e
}

// leave ends a call. If there are too many locks without calls, it gives up the one that was used
// least recently. One with a call would be kept again when the call ends.
func (k *Keys) leave(e *keptKey) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if e.calls--; e.calls > 0 {
		return
	}
	e.idle = k.mu.idle.PushFront(e)
	k.forgetLocked(e)
	if k.mu.idle.Len() > cmp.Or(k.options.Kept, KeptDefault) {
		last := k.mu.idle.Back().Value.(*keptKey)
		k.dropLocked(last)
		go last.mutex.Forget() // which may wait; if it cannot be sent now, the node keeps trying
	}
}

// gone is called when a Mutex has given its lock up, or has lost it.
func (k *Keys) gone(e *keptKey) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.forgetLocked(e)
}

// forgetLocked drops a Mutex that is idle and keeps nothing.
func (k *Keys) forgetLocked(e *keptKey) {
	if e.idle != nil && e.mutex.kept.isFree() {
		k.dropLocked(e)
	}
}

// dropLocked drops a Mutex that is idle.
func (k *Keys) dropLocked(e *keptKey) {
	k.mu.idle.Remove(e.idle)
	e.idle = nil
	delete(k.mu.keys, e.path)
}
