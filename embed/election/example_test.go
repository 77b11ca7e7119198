package election_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/election"
	"github.com/vivarium-go/vivarium/embed/lock"
)

// start starts a node that is an ensemble by itself.
func start() (n *embed.Node, end func()) {
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
	return n, func() { _ = n.Close(); _ = os.RemoveAll(dir) }
}

func ExampleRun() {
	node, end := start()
	defer end()
	// Every replica of a service does this in a goroutine of its own, with the ctx of its life. One
	// of them leads.
	done := errors.New("done")
	err := election.Run(context.Background(), node, "/scheduler", []byte("replica 1"), func(ctx context.Context, token lock.Token) error {
		fmt.Println("leading: ctx ends before anybody else does, and whatever is written carries the token")
		return done
	})
	fmt.Println(errors.Is(err, done))
	// Output:
	// leading: ctx ends before anybody else does, and whatever is written carries the token
	// true
}

func ExampleElection_Campaign() {
	node, end := start()
	defer end()
	ctx := context.Background()
	session, err := node.NewSession(ctx, embed.SessionOptions{})
	if err != nil {
		log.Fatal(err)
	}
	scheduler := election.New(session, "/scheduler")
	leadership, err := scheduler.Campaign(ctx, []byte("10.0.0.1:80"))
	if err != nil {
		log.Fatal(err)
	}
	leader, err := scheduler.Leader(ctx)
	fmt.Printf("%s leads, %v\n", leader.Value, err)

	fmt.Println(leadership.Resign())
	_, err = scheduler.Leader(ctx)
	fmt.Println(errors.Is(err, election.ErrNoLeader))
	// Output:
	// 10.0.0.1:80 leads, <nil>
	// <nil>
	// true
}

func ExampleElection_Observe() {
	node, end := start()
	defer end()
	ctx := context.Background()
	session, err := node.NewSession(ctx, embed.SessionOptions{})
	if err != nil {
		log.Fatal(err)
	}
	scheduler := election.New(session, "/scheduler")
	leadership, err := scheduler.Campaign(ctx, []byte("starting"))
	if err != nil {
		log.Fatal(err)
	}
	for leader, err := range scheduler.Observe(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s\n", leader.Value)
		if string(leader.Value) == "serving" {
			break
		}
		if err := leadership.Proclaim(ctx, []byte("serving")); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// starting
	// serving
}
