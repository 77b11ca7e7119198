package recipetest

import (
	"context"
	"math/rand/v2"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/lock"
)

// A lockKind is what a kind of lock has besides a kind's fields.
type lockKind struct {
	keeps      bool // the contender outlives its Hold and serves several
	identities bool // a caller that lost it may have it back at once
	want       func(rng *rand.Rand, paths []string) want
	acquire    func(context.Context, *embed.Session, want) (*lock.Hold, error)
	// change turns a Hold into another one; nil: that is impossible.
	change func(context.Context, *embed.Session, *lock.Hold, want) (*lock.Hold, error)
}

// A want is what a caller asks for.
type want struct {
	paths   []string
	mode    mode
	permits int
	try     bool
	keep    bool
	note    string

	delay    time.Duration
	identity string
}

func (w want) options() lock.Options {
	return lock.Options{Note: w.note, Delay: w.delay, Identity: w.identity}
}

var lockKinds = []*kind{mutexes, multis, rwmutexes, semaphores, keepers}

var mutexes = &kind{
	name:   "mutex",
	hot:    []string{"/mutex/a"},
	cold:   []string{"/mutex/d"},
	all:    takeMutex,
	queued: contenders,
	lockKind: lockKind{
		want: single(alone),
		acquire: func(ctx context.Context, s *embed.Session, w want) (*lock.Hold, error) {
			m := lock.NewMutex(s, w.paths[0]).With(w.options())
			if w.try {
				return m.TryLock(ctx)
			}
			return m.Lock(ctx)
		},
		identities: true,
	},
}

// single returns a want for one of the paths, in one of the modes.
func single(modes ...mode) func(*rand.Rand, []string) want {
	return func(rng *rand.Rand, paths []string) want {
		return want{paths: []string{pick(rng, paths...)}, mode: pick(rng, modes...), try: rng.IntN(4) == 0}
	}
}

func takeMutex(ctx context.Context, s *embed.Session, path string, soon bool) (held, error) {
	if soon {
		return lock.NewMutex(s, path).Lock(ctx)
	}
	return lock.NewMutex(s, path).TryLock(ctx)
}

// multis share paths with mutexes. No want has a hot and a cold path, because the first would wait
// for the second.
var multis = &kind{
	name:   "multi",
	hot:    []string{"/mutex/a", "/mutex/b", "/mutex/c"},
	cold:   []string{"/mutex/d", "/mutex/e"},
	all:    takeMutex,
	queued: contenders,
	lockKind: lockKind{
		want: func(rng *rand.Rand, paths []string) want {
			if len(paths) > 3 {
				paths = [][]string{paths[:3], paths[3:]}[rng.IntN(2)]
			}
			paths = slices.Clone(paths)
			rng.Shuffle(len(paths), func(i, j int) { paths[i], paths[j] = paths[j], paths[i] })
			return want{paths: paths[:min(len(paths), 2+rng.IntN(2))], try: rng.IntN(4) == 0}
		},
		acquire: func(ctx context.Context, s *embed.Session, w want) (*lock.Hold, error) {
			m := lock.NewMulti(s, w.paths...).With(w.options())
			if w.try {
				return m.TryLock(ctx)
			}
			return m.Lock(ctx)
		},
	},
}

var rwmutexes = &kind{
	name: "rwmutex",
	hot:  []string{"/rw/a"},
	cold: []string{"/rw/b"},
	all: func(ctx context.Context, s *embed.Session, path string, soon bool) (held, error) {
		if soon {
			return lock.NewRWMutex(s, path).Lock(ctx)
		}
		return lock.NewRWMutex(s, path).TryLock(ctx)
	},
	queued: contenders,
	lockKind: lockKind{
		want: single(shared, shared, alone),
		acquire: func(ctx context.Context, s *embed.Session, w want) (*lock.Hold, error) {
			m := lock.NewRWMutex(s, w.paths[0]).With(w.options())
			switch {
			case w.mode == shared && w.try:
				return m.TryRLock(ctx)
			case w.mode == shared:
				return m.RLock(ctx)
			case w.try:
				return m.TryLock(ctx)
			}
			return m.Lock(ctx)
		},
		identities: true,
		change: func(ctx context.Context, s *embed.Session, h *lock.Hold, w want) (*lock.Hold, error) {
			m := lock.NewRWMutex(s, w.paths[0]).With(w.options())
			if w.mode == shared {
				return m.Downgrade(ctx, h)
			}
			return m.Upgrade(ctx, h)
		},
	},
}

// permitsAgreed is the limit that the callers of a semaphore agree on.
const permitsAgreed = 3

var semaphores = &kind{
	name: "semaphore",
	hot:  []string{"/semaphore/a"},
	cold: []string{"/semaphore/b"},
	all: func(ctx context.Context, s *embed.Session, path string, soon bool) (held, error) {
		m := lock.NewSemaphore(s, path, permitsAgreed)
		n, err := m.Limit(ctx)
		if err != nil {
			return nil, err
		}
		if soon {
			return m.Acquire(ctx, n)
		}
		return m.TryAcquire(ctx, n)
	},
	queued: func(ctx context.Context, s *embed.Session, path string) []string {
		return append(contenders(ctx, s, path+"/locks"), contenders(ctx, s, path+"/leases")...)
	},
	lockKind: lockKind{
		want: func(rng *rand.Rand, paths []string) want {
			w := single(counted)(rng, paths)
			w.permits = 1 + rng.IntN(permitsAgreed)
			return w
		},
		acquire: func(ctx context.Context, s *embed.Session, w want) (*lock.Hold, error) {
			m := lock.NewSemaphore(s, w.paths[0], permitsAgreed).With(w.options())
			if w.try {
				return m.TryAcquire(ctx, w.permits)
			}
			return m.Acquire(ctx, w.permits)
		},
	},
}

// keepFor is how long a contender from outside waits for a kept lock.
const keepFor = 20 * time.Millisecond

// keepers are mutexes with and without Options.Keep.
var keepers = &kind{
	name:   "keeper",
	hot:    []string{"/keep/a"},
	cold:   []string{"/keep/b"},
	all:    takeMutex,
	queued: contenders,
	lockKind: lockKind{
		keeps: true,
		want: func(rng *rand.Rand, paths []string) want {
			w := single(alone)(rng, paths)
			w.keep = rng.IntN(4) > 0
			return w
		},
		acquire: func(ctx context.Context, s *embed.Session, w want) (*lock.Hold, error) {
			m := lock.NewMutex(s, w.paths[0]).With(lock.Options{Delay: w.delay})
			if w.keep {
				m = keeping(s, w.paths[0])
			}
			if w.try {
				return m.TryLock(ctx)
			}
			return m.Lock(ctx)
		},
	},
}

// keptBy identifies a Mutex with Options.Keep.
type keptBy struct {
	session *embed.Session
	path    string
}

// keptMutexes has a *lock.Mutex for each keptBy.
var keptMutexes sync.Map

func keeping(s *embed.Session, path string) *lock.Mutex {
	m, ok := keptMutexes.Load(keptBy{s, path})
	if !ok {
		m, _ = keptMutexes.LoadOrStore(keptBy{s, path}, lock.NewMutex(s, path).With(lock.Options{Keep: keepFor}))
	}
	return m.(*lock.Mutex)
}

var numbered = regexp.MustCompile(`[0-9]{10}$`)

// contenders returns the contenders' znodes right below a path, in no order.
func contenders(ctx context.Context, s *embed.Session, path string) (znodes []string) {
	names, _, _ := s.Children(ctx, path) // without the path there are none
	for _, name := range names {
		if numbered.MatchString(name) {
			znodes = append(znodes, path+"/"+name)
		}
	}
	return znodes
}
