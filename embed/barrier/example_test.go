package barrier_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"os"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/barrier"
)

// start starts a node that is an ensemble by itself, and opens a session.
func start() (s *embed.Session, end func()) {
	dir, err := os.MkdirTemp("", "example-")
	if err != nil {
		log.Fatal(err)
	}
	n, err := embed.Start(embed.Config{
		Dir: dir, Tick: 10 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
		RequestTimeout: time.Minute, SessionTimeout: time.Minute, // a machine that runs tests may be busy
	})
	if err != nil {
		log.Fatal(err)
	}
	s, err = n.NewSession(context.Background(), embed.SessionOptions{})
	if err != nil {
		log.Fatal(err)
	}
	return s, func() { _ = n.Close(); _ = os.RemoveAll(dir) }
}

// Three workers begin together and end together. As a rule each is a process.
func ExampleEnter() {
	session, end := start()
	defer end()
	ctx := context.Background()
	results := make(chan error)
	for range 3 {
		go func() {
			pass, err := barrier.Enter(ctx, session, "/jobs/17/start", 3)
			if err == nil { // all three are here
				err = pass.Leave(ctx)
			}
			results <- err // all three are done
		}()
	}
	for range 3 {
		fmt.Println(<-results)
	}
	// Output:
	// <nil>
	// <nil>
	// <nil>
}

// Others wait while a schema is changed.
func ExampleGate() {
	session, end := start()
	defer end()
	ctx := context.Background()
	gate := barrier.NewGate(session, "/schema/changing")
	if err := gate.Shut(ctx); err != nil {
		log.Fatal(err)
	}
	passed := make(chan error)
	go func() { passed <- gate.Wait(ctx) }()
	fmt.Println("opened:", gate.Open(ctx))
	fmt.Println("passed:", <-passed)
	// Output:
	// opened: <nil>
	// passed: <nil>
}

// A report waits until all regions have delivered. Each region counts once, however often it says
// that it is done.
func ExampleCountdown() {
	session, end := start()
	defer end()
	ctx := context.Background()
	regions := barrier.NewCountdown(session, "/reports/2026-01", 3)
	for _, region := range []string{"north", "south", "south", "west"} {
		if err := regions.Done(ctx, region); err != nil {
			log.Fatal(err)
		}
		left, err := regions.Left(ctx)
		fmt.Println(region, "is done,", left, "left,", err)
	}
	fmt.Println(regions.Wait(ctx))
	// Output:
	// north is done, 2 left, <nil>
	// south is done, 1 left, <nil>
	// south is done, 1 left, <nil>
	// west is done, 0 left, <nil>
	// <nil>
}
