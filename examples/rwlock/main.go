// Rwlock shows a price list that many shops read and its owner changes. It shows readers that hold
// the lock together, a writer that goes on as a reader, and two readers that both want to write.
//
// One node is enough: each of them has a session of its own, as if it were in another process.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"sync"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/lock"
	"github.com/vivarium-go/vivarium/examples/internal/nodes"
)

const path = "/locks/prices"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	node, end, err := nodes.One("rwlock")
	if err != nil {
		return err
	}
	defer end()

	list := &prices{bread: 300, milk: 120, both: 420}
	var shops []*shop
	for _, name := range []string{"the owner", "shop 1", "shop 2"} {
		s, err := node.NewSession(ctx, embed.SessionOptions{})
		if err != nil {
			return err
		}
		defer s.Close()
		shops = append(shops, &shop{name: name, lock: lock.NewRWMutex(s, path), list: list})
	}
	owner, first, second := shops[0], shops[1], shops[2]
	if err := readTogether(ctx, owner, first, second); err != nil {
		return err
	}
	if err := change(ctx, owner, first); err != nil {
		return err
	}
	return raise(ctx, first, second)
}

// prices stands for a file or a table of another system. Nothing protects it but the lock.
type prices struct {
	newest            lock.Token // the greatest token of a writer
	bread, milk, both int
}

// set changes one price after the other. A reader in between would get a wrong sum.
func (p *prices) set(t lock.Token, bread, milk int) error {
	if t.Compare(p.newest) < 0 {
		return errors.New("the token is stale")
	}
	p.newest = t
	p.bread = bread
	p.milk = milk
	p.both = bread + milk
	return nil
}

func (p *prices) check() error {
	if p.bread+p.milk != p.both {
		return fmt.Errorf("bread is %d, milk %d, and both are %d", p.bread, p.milk, p.both)
	}
	return nil
}

type shop struct {
	name string
	lock *lock.RWMutex
	list *prices
}

// read reads the prices under the read lock.
func (s *shop) read(ctx context.Context) error {
	hold, err := s.lock.RLock(ctx)
	if err != nil {
		return err
	}
	defer hold.Release()
	fmt.Printf("%s reads: bread %d, milk %d\n", s.name, s.list.bread, s.list.milk)
	return s.list.check()
}

// readTogether lets two readers hold the lock at once, which keeps a writer out.
func readTogether(ctx context.Context, owner, first, second *shop) error {
	hold, err := first.lock.RLock(ctx)
	if err != nil {
		return err
	}
	defer hold.Release()
	if err := second.read(ctx); err != nil { // together with the first
		return err
	}
	if _, err := owner.lock.TryLock(ctx); !errors.Is(err, lock.ErrHeld) {
		return fmt.Errorf("a shop reads, and trying to write answers %w", err)
	}
	fmt.Println("while shop 1 reads, shop 2 reads too, and the owner cannot write")
	return nil
}

// change lets a writer go on as a reader. Others can read what it wrote, and nobody can write
// before it has finished.
func change(ctx context.Context, owner, reader *shop) error {
	write, err := owner.lock.Lock(ctx)
	if err != nil {
		return err
	}
	defer write.Release()
	if err := owner.list.set(write.Token(), 320, 130); err != nil {
		return err
	}
	fmt.Println("the owner has new prices, token", write.Token())
	read, err := owner.lock.Downgrade(ctx, write)
	if err != nil {
		return err
	}
	defer read.Release()
	if err := reader.read(ctx); err != nil {
		return err
	}
	if _, err := reader.lock.TryLock(ctx); !errors.Is(err, lock.ErrHeld) {
		return fmt.Errorf("the owner reads, and trying to write answers %w", err)
	}
	fmt.Println("the owner has downgraded: shops read, and nobody can write while it prints the labels")
	return nil
}

// raise has two readers that both find bread too cheap. Each would wait for the other to leave, so
// one is refused.
func raise(ctx context.Context, shops ...*shop) error {
	reads := make([]*lock.Hold, len(shops))
	for i, s := range shops {
		read, err := s.lock.RLock(ctx)
		if err != nil {
			return err
		}
		defer read.Release()
		reads[i] = read
	}
	var both sync.WaitGroup
	errs := make([]error, len(shops))
	for i, s := range shops {
		both.Go(func() { errs[i] = s.raise(ctx, reads[i]) })
	}
	both.Wait()
	return errors.Join(errs...)
}

const least = 350

// raise raises the price of bread if it is too low. What the shop has read stays true until it
// writes, because nobody writes in between.
func (s *shop) raise(ctx context.Context, read *lock.Hold) error {
	if s.list.bread >= least {
		return read.Release()
	}
	write, err := s.lock.Upgrade(ctx, read)
	if errors.Is(err, lock.ErrUpgrade) {
		fmt.Println(s.name, "is refused:", lock.ErrUpgrade)
		if err := read.Release(); err != nil { // this lets the other shop write
			return err
		}
		return s.read(ctx)
	}
	if err != nil {
		return err
	}
	fmt.Printf("%s is upgraded, and raises bread to %d\n", s.name, least)
	return errors.Join(s.list.set(write.Token(), least, s.list.milk), write.Release())
}
