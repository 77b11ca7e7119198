package lock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/lock"
)

// session opens a session on a node that is an ensemble by itself.
func session() (s *embed.Session, end func()) {
	node, end := start()
	s, err := node.NewSession(context.Background(), embed.SessionOptions{})
	if err != nil {
		log.Fatal(err)
	}
	return s, end
}

// Many processes read a price list. A process that changes the list goes on reading what it has
// written.
func ExampleRWMutex() {
	session, end := session()
	defer end()
	ctx := context.Background()
	prices := lock.NewRWMutex(session, "/locks/prices")
	write, err := prices.Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	_, err = prices.TryRLock(ctx)
	fmt.Println("a reader beside the writer:", errors.Is(err, lock.ErrHeld))

	read, err := prices.Downgrade(ctx, write) // nobody writes in between
	if err != nil {
		log.Fatal(err)
	}
	defer read.Release()
	other, err := prices.TryRLock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer other.Release()
	fmt.Println("two readers:", read.Err() == nil && other.Err() == nil)
	// Output:
	// a reader beside the writer: true
	// two readers: true
}

// After an upgrade, what was read under the read lock is still true; otherwise the upgrade is
// refused.
func ExampleRWMutex_Upgrade() {
	session, end := session()
	defer end()
	ctx := context.Background()
	prices := lock.NewRWMutex(session, "/locks/prices")
	read, err := prices.RLock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	write, err := prices.Upgrade(ctx, read)
	if errors.Is(err, lock.ErrUpgrade) { // another reader was first and waits for this one
		_ = read.Release()
	}
	if err != nil {
		log.Fatal(err)
	}
	defer write.Release()
	fmt.Println("reads:", read.Err())
	fmt.Println("writes, with a greater token:", write.Token().Compare(read.Token()) > 0)
	// Output:
	// reads: released
	// writes, with a greater token: true
}

// All processes share a limit, which can be changed while they work.
func ExampleSemaphore() {
	session, end := session()
	defer end()
	ctx := context.Background()
	connections := lock.NewSemaphore(session, "/locks/connections", 3)
	hold, err := connections.Acquire(ctx, 2)
	if err != nil {
		log.Fatal(err)
	}
	defer hold.Release()
	_, err = connections.TryAcquire(ctx, 2)
	fmt.Println("two permits of the one that is left are refused:", errors.Is(err, lock.ErrHeld))

	if err := connections.Resize(ctx, 4); err != nil {
		log.Fatal(err)
	}
	more, err := connections.TryAcquire(ctx, 2)
	if err != nil {
		log.Fatal(err)
	}
	defer more.Release()
	fmt.Println("two of the two that are left are granted:", more.Err() == nil)
	// Output:
	// two permits of the one that is left are refused: true
	// two of the two that are left are granted: true
}

// Both accounts are locked or none. Two transfers in opposite directions cannot wait for each
// other.
func ExampleMulti() {
	session, end := session()
	defer end()
	ctx := context.Background()
	hold, err := lock.NewMulti(session, "/locks/alice", "/locks/bob").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	_, err = lock.NewMutex(session, "/locks/bob").TryLock(ctx)
	fmt.Println("held:", errors.Is(err, lock.ErrHeld))
	fmt.Println(hold.Release()) // both locks
	// Output:
	// held: true
	// <nil>
}

// A process that acquires the same lock again and again, and rarely has to share it, keeps it in
// between. Then it needs no commit.
func ExampleOptions_keep() {
	session, end := session()
	defer end()
	ctx := context.Background()
	// Use one Mutex for all goroutines of the process: it is the Mutex that keeps the lock.
	mutex := lock.NewMutex(session, "/locks/journal").With(lock.Options{Keep: 100 * time.Millisecond})
	var first, last lock.Token
	for i := range 1000 {
		hold, err := mutex.Lock(ctx)
		if err != nil {
			log.Fatal(err)
		}
		last = hold.Token()
		if i == 0 {
			first = last
		}
		if err := hold.Release(); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println("one commit:", first.Zxid == last.Zxid)
	fmt.Println("tokens grow:", last.Local-first.Local)
	// Output:
	// one commit: true
	// tokens grow: 999
}

// A function acquires the lock that it needs, unless its caller has it already.
func ExampleHeld() {
	session, end := session()
	defer end()
	const path = "/locks/report"
	appendLine := func(ctx context.Context, line string) error {
		hold, ok := lock.Held(ctx, path)
		if !ok {
			var err error
			if hold, err = lock.NewMutex(session, path).Lock(ctx); err != nil {
				return err
			}
		}
		defer hold.Release() // does nothing if the caller has acquired the lock
		fmt.Println(line, "- the caller has the lock:", ok)
		return nil
	}
	ctx := context.Background()
	if err := appendLine(ctx, "by itself"); err != nil {
		log.Fatal(err)
	}
	hold, err := lock.NewMutex(session, path).Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer hold.Release()
	if err := appendLine(hold.Context(), "under it"); err != nil {
		log.Fatal(err)
	}
	fmt.Println("held still:", hold.Err() == nil)
	// Output:
	// by itself - the caller has the lock: false
	// under it - the caller has the lock: true
	// held still: true
}

// List the holder and the waiters of a lock, and ask for it back.
func ExampleHolders() {
	session, end := session()
	defer end()
	ctx := context.Background()
	const path = "/locks/printer"
	hold, err := lock.NewMutex(session, path).With(lock.Options{Note: "a long print"}).Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	queued, err := session.Watch(ctx, path, embed.WatchOnce)
	if err != nil {
		log.Fatal(err)
	}
	printed := make(chan error)
	go func() {
		hold, err := lock.NewMutex(session, path).With(lock.Options{Note: "one page"}).Lock(ctx)
		if err == nil {
			err = hold.Release()
		}
		printed <- err
	}()
	<-queued.Events()

	holders, err := lock.Holders(ctx, session, path)
	if err != nil {
		log.Fatal(err)
	}
	waiters, err := lock.Waiters(ctx, session, path)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s, of member %d\n", holders[0].Note, holders[0].Member)
	fmt.Printf("%s waits\n", waiters[0].Note)

	// This only asks: the holder is free to go on.
	if err := lock.Revoke(ctx, session, path); err != nil {
		log.Fatal(err)
	}
	<-hold.Revoked()
	fmt.Println(hold.Release())
	fmt.Println(<-printed)
	// Output:
	// a long print, of member 1
	// one page waits
	// <nil>
	// <nil>
}

// A write that happens only while the lock is held.
func ExampleGuard() {
	session, end := session()
	defer end()
	ctx := context.Background()
	if _, err := session.Create(ctx, "/report", nil, embed.Persistent); err != nil {
		log.Fatal(err)
	}
	hold, err := lock.NewMutex(session, "/locks/report").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	write := func(line string) error {
		_, err := session.Multi(ctx, lock.Guard(hold), embed.OpSet("/report", []byte(line), embed.AnyVersion))
		return err
	}
	fmt.Println(write("under the lock"))
	if err := hold.Release(); err != nil {
		log.Fatal(err)
	}
	fmt.Println(errors.Is(write("too late"), embed.ErrNotHeld))
	data, _, err := session.Get(ctx, "/report")
	fmt.Printf("%s, %v\n", data, err)
	// Output:
	// <nil>
	// true
	// under the lock, <nil>
}

// Each customer has a lock of its own, and an idle one costs nothing.
func ExampleKeys() {
	node, end := start()
	defer end()
	ctx := context.Background()
	session, err := node.NewSession(ctx, embed.SessionOptions{})
	if err != nil {
		log.Fatal(err)
	}
	customers := lock.NewKeys(session, "/locks/customers")
	hold, err := customers.Lock(ctx, "4711")
	if err != nil {
		log.Fatal(err)
	}
	_, err = customers.TryLock(ctx, "4711")
	fmt.Println("held by another:", errors.Is(err, lock.ErrHeld))
	other, err := customers.TryLock(ctx, "0815")
	fmt.Println("another customer:", err)
	fmt.Println("released:", hold.Release(), other.Release())
	// Output:
	// held by another: true
	// another customer: <nil>
	// released: <nil> <nil>
}
