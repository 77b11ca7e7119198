package recipetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/election"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/internal/embedkit"
	"github.com/vivarium-go/vivarium/embed/lock"
	"github.com/vivarium-go/vivarium/embed/task"
	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/internal/files"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/storage"
	"github.com/vivarium-go/vivarium/storage/disk"
)

// A recipe is one whose contenders have sequence numbers.
type recipe struct {
	name, path string
	below      string // the parent of the contenders, within path
	enter      func(context.Context, *embed.Session, string) (lock.Token, func() error, error)
}

func granted(h *lock.Hold, err error) (lock.Token, func() error, error) {
	if err != nil {
		return lock.Token{}, nil, err
	}
	return h.Token(), h.Release, nil
}

var recipes = []recipe{
	{"mutex", "/mutex", "", func(ctx context.Context, s *embed.Session, path string) (lock.Token, func() error, error) {
		return granted(lock.NewMutex(s, path).Lock(ctx))
	}},
	{"writer", "/writer", "", func(ctx context.Context, s *embed.Session, path string) (lock.Token, func() error, error) {
		return granted(lock.NewRWMutex(s, path).Lock(ctx))
	}},
	{"reader", "/reader", "", func(ctx context.Context, s *embed.Session, path string) (lock.Token, func() error, error) {
		return granted(lock.NewRWMutex(s, path).RLock(ctx))
	}},
	// The znode that keeps the container counts as one permit below leases. Below locks it makes
	// everybody queue.
	{"permits", "/permits", "/leases", func(ctx context.Context, s *embed.Session, path string) (lock.Token, func() error, error) {
		return granted(lock.NewSemaphore(s, path, 8).Acquire(ctx, 1))
	}},
	{"queue for a permit", "/permit", "/locks", func(ctx context.Context, s *embed.Session, path string) (lock.Token, func() error, error) {
		return granted(lock.NewSemaphore(s, path, 1).Acquire(ctx, 1))
	}},
	{"election", "/election", "", func(ctx context.Context, s *embed.Session, path string) (lock.Token, func() error, error) {
		l, err := election.New(s, path).Campaign(ctx, nil)
		if err != nil {
			return lock.Token{}, nil, err
		}
		return l.Token(), l.Resign, nil
	}},
}

func (r *recipe) parent() string { return r.path + r.below }
func (r *recipe) keeper() string { return r.parent() + "/keeper" }

// E6: the counter of a recipe's znode reaches its end. From there on all contenders would get the
// same number, and a later one could come first. So those who have a number are served in order,
// and those who come later are refused. Once nobody is left, the ensemble removes the container,
// and the next one counts from zero, with greater tokens.
func TestRecipes_AtTheEndOfTheNumbers(t *testing.T) {
	const last = 1<<31 - 1
	dir := t.TempDir()
	founding := embedtest.New(t, 1, embedtest.Options{Dir: dir, Config: embedkit.Patient})
	s := founding.Session(1, embed.SessionOptions{})
	for _, r := range recipes {
		_, release, err := r.enter(testkit.Context(t), s, r.path)
		must(t, err)
		_, err = s.Create(testkit.Context(t), r.keeper(), nil, embed.Persistent)
		must(t, errors.Join(err, release()))
	}
	must(t, s.Close())
	must(t, founding.Snapshot(1)) // so that the log does not bring the counters back
	founding.Stop(1)
	for _, r := range recipes {
		setCounter(t, filepath.Join(dir, "member-1"), r.parent(), last-2)
	}

	ens := embedtest.New(t, 1, embedtest.Options{Dir: dir, Config: func(c *embed.Config) {
		embedkit.Patient(c)
		c.ContainerCheckInterval = 20 * time.Millisecond
	}})
	for _, r := range recipes {
		t.Run(r.name, func(t *testing.T) {
			s := ens.Session(1, embed.SessionOptions{})
			first, release, err := r.enter(testkit.Context(t), s, r.path)
			must(t, err)
			type grant struct {
				token   lock.Token
				release func() error
				err     error
			}
			second := make(chan grant, 1)
			go func() {
				token, release, err := r.enter(testkit.Context(t), s, r.path)
				second <- grant{token, release, err}
			}()
			ens.Until("the second to have the last number but one", func() bool {
				names, _, err := s.Children(testkit.Context(t), r.parent())
				must(t, err)
				return slices.ContainsFunc(names, func(name string) bool { return strings.HasSuffix(name, fmt.Sprint(last-1)) })
			})
			refused := func(when string) {
				t.Helper()
				for range 2 {
					if _, _, err := r.enter(testkit.Context(t), s, r.path); !errors.Is(err, lock.ErrLockExhausted) || !strings.Contains(err.Error(), r.path) {
						t.Errorf("%s a third entered with %v", when, err)
					}
				}
			}
			refused("while two are there")
			must(t, release())
			next := <-second
			must(t, next.err)
			if next.token.Compare(first) <= 0 {
				t.Errorf("the second has the token %v, the first %v", next.token, first)
			}
			refused("while one is there")
			must(t, next.release())
			refused("while nobody is there")

			must(t, s.Delete(testkit.Context(t), r.keeper(), embed.AnyVersion))
			var again lock.Token
			ens.Until("the container to be made anew", func() bool {
				again, release, err = r.enter(testkit.Context(t), s, r.path)
				if err != nil && !errors.Is(err, lock.ErrLockExhausted) {
					t.Fatal(err)
				}
				return err == nil
			})
			must(t, release())
			if again.Compare(next.token) <= 0 {
				t.Errorf("in the new container the token is %v, after %v", again, next.token)
			}
		})
	}
}

// The numbers of a queue's tasks end too. Put says so as soon as it could not keep the order: while a
// task with the last number is there. What was put before begins in its order. A task that comes
// after all others have gone may have the last number again, since there is nobody whose turn it
// could take.
//
// Of the other recipes, job, partition and lock.Keys have the numbers of the locks above. The names
// of barrier, discovery, group and value have none.
func TestTasks_AtTheEndOfTheNumbers(t *testing.T) {
	const last = 1<<31 - 1
	dir := t.TempDir()
	founding := embedtest.New(t, 1, embedtest.Options{Dir: dir, Config: embedkit.Patient})
	s := founding.Session(1, embed.SessionOptions{})
	queues := map[string]task.Options{
		"/locking": {}, "/entries": {Layout: task.Entries}, "/plain": {Layout: task.Plain},
		"/simple": {Layout: task.Simple}, "/limited": {Limit: 2},
	}
	parent := func(path string) string {
		if o := queues[path]; o.Layout == task.Locking {
			return path + "/entries"
		}
		return path
	}
	for path, o := range queues {
		q := task.New(s, path, o)
		_, err := q.Put(testkit.Context(t), nil, task.PutOptions{})
		must(t, err)
		_, err = q.Take(testkit.Context(t))
		must(t, err)
	}
	must(t, s.Close())
	must(t, founding.Snapshot(1)) // so that the log does not bring the counters back
	founding.Stop(1)
	for path := range queues {
		setCounter(t, filepath.Join(dir, "member-1"), parent(path), last-1)
	}

	ens := embedtest.New(t, 1, embedtest.Options{Dir: dir, Config: embedkit.Patient})
	s = ens.Session(1, embed.SessionOptions{})
	for path, o := range queues {
		ctx, q := testkit.Context(t), task.New(s, path, o)
		put := func(data string) error {
			_, err := q.Put(ctx, []byte(data), task.PutOptions{})
			return err
		}
		takes := func(want string) {
			t.Helper()
			if data, err := q.Take(ctx); string(data) != want || err != nil {
				t.Errorf("%s: took %q, %v, want %q", path, data, err, want)
			}
		}
		must(t, errors.Join(put("first"), put("second")))
		for range 2 {
			if err := put("third"); !errors.Is(err, task.ErrExhausted) {
				t.Errorf("%s: %v", path, err)
			}
		}
		takes("first")
		if err := put("third"); !errors.Is(err, task.ErrExhausted) {
			t.Errorf("%s, one task later: %v", path, err)
		}
		claimed, err := q.Claim(ctx)
		must(t, err)
		if string(claimed.Data()) != "second" || !strings.HasSuffix(claimed.Name(), fmt.Sprint(last)) {
			t.Errorf("%s: claimed %q of %s", path, claimed.Data(), claimed.Name())
		}
		if err := put("third"); !errors.Is(err, task.ErrExhausted) {
			t.Errorf("%s, with a claim: %v", path, err)
		}
		must(t, claimed.Retry(0))
		claimed, err = q.Claim(ctx)
		must(t, err)
		if claimed.Attempt() != 2 {
			t.Errorf("%s: attempt %d", path, claimed.Attempt())
		}
		must(t, claimed.Finish())
		must(t, put("fourth"))
		claimed, err = q.Claim(ctx)
		must(t, err)
		if string(claimed.Data()) != "fourth" || claimed.Attempt() != 1 {
			t.Errorf("%s: claimed %q, attempt %d", path, claimed.Data(), claimed.Attempt())
		}
		must(t, claimed.Finish())
	}
}

// setCounter sets the create counter of a znode in the images of a stopped member.
func setCounter(t *testing.T, dir, path string, counter int32) {
	t.Helper()
	images, err := filepath.Glob(filepath.Join(dir, "image", "shard-*"))
	must(t, err)
	found := false
	for _, image := range images {
		found = setCounterIn(t, image, path, counter) || found
	}
	if !found {
		t.Fatalf("no image has %s", path)
	}
}

// setCounterIn returns false if the image does not have the znode.
func setCounterIn(t *testing.T, dir, path string, counter int32) bool {
	t.Helper()
	d, err := disk.Open(files.OS, dir)
	must(t, err)
	image, err := storage.Open(storage.Options{Disk: d, Dir: dir})
	must(t, err)
	defer image.Close()
	var record []byte
	must(t, image.Load(func(table storage.Table, key, value []byte) error {
		if table == storage.Znodes && string(key) == path {
			record = bytes.Clone(value)
		}
		return nil
	}))
	if record == nil {
		return false
	}
	z, err := command.DecodeZnode(record)
	must(t, err)
	z.Created = counter
	b := image.NewBatch()
	b.Put(storage.Znodes, []byte(path), command.EncodeZnode(z))
	must(t, b.Commit(image.Applied()))
	must(t, image.Sync())
	return true
}
