package group_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"os"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/group"
	"github.com/vivarium-go/vivarium/embed/value"
)

// start starts a node that is an ensemble by itself, and opens a session.
func start(ctx context.Context) (n *embed.Node, s *embed.Session, end func()) {
	dir, err := os.MkdirTemp("", "example-")
	if err != nil {
		log.Fatal(err)
	}
	n, err = embed.Start(embed.Config{
		Dir: dir, Tick: 10 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
		RequestTimeout: time.Minute, SessionTimeout: time.Minute, // a machine that runs tests may be busy
	})
	if err != nil {
		log.Fatal(err)
	}
	s, err = n.NewSession(ctx, embed.SessionOptions{})
	if err != nil {
		log.Fatal(err)
	}
	return n, s, func() { _ = n.Close(); _ = os.RemoveAll(dir) }
}

// A member is listed with its data as long as its process lives.
func ExampleJoin() {
	ctx := context.Background()
	node, session, end := start(ctx)
	defer end()
	workers, err := group.Watch(ctx, session, "/workers", group.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer workers.Close()

	here := group.Join(node, "/workers", "worker-7", []byte("idle"), group.Options{})
	defer here.Close()
	for c, err := range workers.Changes(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		for _, m := range c.Joined {
			fmt.Printf("%s has joined: %s\n", m.ID, m.Data)
			if err := here.Set(ctx, []byte("busy")); err != nil {
				log.Fatal(err)
			}
		}
		for _, m := range c.Changed {
			fmt.Printf("%s has changed: %s\n", m.ID, m.Data)
			if err := here.Close(); err != nil {
				log.Fatal(err)
			}
		}
		if len(c.Left) > 0 {
			fmt.Printf("%s has left\n", c.Left[0].ID)
			break // a service goes on as long as it lives
		}
	}
	// Output:
	// worker-7 has joined: idle
	// worker-7 has changed: busy
	// worker-7 has left
}

// An announcement tells whether others see its znode at this moment.
func ExampleAnnouncement_Changes() {
	ctx := context.Background()
	node, _, end := start(ctx)
	defer end()
	here := group.Announce(node, "/brokers/ids/1", []byte("10.0.0.1:9092"), group.Options{})
	defer here.Close()
	for status, err := range here.Changes(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		if status.Present {
			fmt.Println("announced")
			break
		}
	}
	// Output: announced
}

// A writer waits until every member has applied what it has written.
func ExampleAwaitApplied() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	node, session, end := start(ctx)
	defer end()
	rate := value.New(session, "/config/rate", value.JSON[int]())
	if _, err := rate.Set(ctx, 10); err != nil {
		log.Fatal(err)
	}
	begun := make(chan struct{}, 2)
	go func() { // in every process
		_ = group.Follow(ctx, node, "/config/rate", "worker-7", value.JSON[int](),
			func(ctx context.Context, rate value.Versioned[int]) error {
				fmt.Println("the rate is", rate.Value)
				begun <- struct{}{}
				return nil
			})
	}()
	<-begun
	twenty, err := rate.Set(ctx, 20)
	if err != nil {
		log.Fatal(err)
	}
	missing, err := group.AwaitApplied(ctx, session, "/config/rate", twenty.Mzxid)
	fmt.Println("applied by all:", missing, err)
	// Output:
	// the rate is 10
	// the rate is 20
	// applied by all: [] <nil>
}
