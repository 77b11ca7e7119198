package lock_test

import (
	"context"
	"math/rand/v2"
	"regexp"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/lock"
)

// A kind of lock that takes part in the schedules.
type kind struct {
	name  string
	paths []string
	keeps bool                                      // the contender outlives its Hold, and the next Hold may overtake
	want  func(rng *rand.Rand, paths []string) want // what a caller on some of the paths asks for
	all   func(path string) want                    // what excludes everybody else, at once
	take  func(context.Context, *embed.Session, want) (*lock.Hold, error)
	// queued returns the contenders of a path: all that is below it.
	queued func(ctx context.Context, s *embed.Session, path string) []string
}

// A want is what a caller asks for.
type want struct {
	paths   []string
	mode    mode
	permits int
	try     bool
}

var kinds = []*kind{mutexes}

var mutexes = &kind{
	name:  "mutex",
	paths: []string{"/mutex/a", "/mutex/b"},
	want: func(rng *rand.Rand, paths []string) want {
		return want{paths: []string{pick(rng, paths...)}, try: rng.IntN(4) == 0}
	},
	all: func(path string) want { return want{paths: []string{path}, try: true} },
	take: func(ctx context.Context, s *embed.Session, w want) (*lock.Hold, error) {
		m := lock.NewMutex(s, w.paths[0])
		if w.try {
			return m.TryLock(ctx)
		}
		return m.Lock(ctx)
	},
	queued: contenders,
}

func pick[T any](rng *rand.Rand, from ...T) T { return from[rng.IntN(len(from))] }

var numbered = regexp.MustCompile(`[0-9]{10}$`)

// contenders returns the znodes right below a path that stand in its queue, in no order.
func contenders(ctx context.Context, s *embed.Session, path string) (znodes []string) {
	names, _, _ := s.Children(ctx, path) // without a path there is nobody
	for _, name := range names {
		if numbered.MatchString(name) {
			znodes = append(znodes, path+"/"+name)
		}
	}
	return znodes
}
