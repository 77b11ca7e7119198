package lock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/lock"
)

// start starts a node that is an ensemble by itself.
func start() (n *embed.Node, end func()) {
	dir, err := os.MkdirTemp("", "example-")
	if err != nil {
		log.Fatal(err)
	}
	n, err = embed.Start(embed.Config{Dir: dir, Tick: 10 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		log.Fatal(err)
	}
	return n, func() { _ = n.Close(); _ = os.RemoveAll(dir) }
}

func ExampleDo() {
	node, end := start()
	defer end()
	err := lock.Do(context.Background(), node, "/locks/report", func(ctx context.Context, token lock.Token) error {
		fmt.Println("nobody else writes the report now")
		return ctx.Err() // ends before anybody else can be granted the lock
	})
	fmt.Println(err)
	// Output:
	// nobody else writes the report now
	// <nil>
}

func ExampleMutex() {
	node, end := start()
	defer end()
	ctx := context.Background()
	session, err := node.NewSession(ctx, embed.SessionOptions{})
	if err != nil {
		log.Fatal(err)
	}
	mutex := lock.NewMutex(session, "/locks/report")
	hold, err := mutex.Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer hold.Release()
	fmt.Println("held:", hold.Err() == nil)

	_, err = mutex.TryLock(ctx) // every call is a contender of its own
	fmt.Println("held by another:", errors.Is(err, lock.ErrHeld))
	// Output:
	// held: true
	// held by another: true
}

// The protected resource remembers the greatest token it has seen and refuses smaller ones. So a
// holder that was paused in the middle of a call cannot do harm.
func ExampleToken() {
	var newest lock.Token
	write := func(t lock.Token) error {
		if t.Compare(newest) < 0 {
			return errors.New("stale token")
		}
		newest = t
		return nil
	}
	paused, current := lock.Token{Zxid: 41}, lock.Token{Zxid: 57}
	fmt.Println(write(current))
	fmt.Println(write(paused))
	fmt.Println(current)
	// Output:
	// <nil>
	// stale token
	// 00000000000000000057-00000000000000000000
}

// A write that happens only under the lock, in a session that others need not wait for for long.
func ExampleDoWith() {
	node, end := start()
	defer end()
	quick := embed.OpenerWith(node, embed.SessionOptions{Timeout: 5 * time.Second})
	err := lock.DoWith(context.Background(), quick, "/locks/report", lock.Options{Note: "replica 1"}, func(ctx context.Context, hold *lock.Hold) error {
		report := embed.OpCreate("/report", []byte("written once"), embed.Persistent)
		_, err := hold.Session().Multi(ctx, lock.Guard(hold), report)
		return err
	})
	fmt.Println(err)
	// Output: <nil>
}
