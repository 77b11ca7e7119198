package job_test

import (
	"context"
	"errors"
	"fmt"
	stdlog "log"
	"log/slog"
	"os"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/job"
	"github.com/vivarium-go/vivarium/embed/lock"
)

// start starts a node that is an ensemble by itself, and opens a session.
func start() (n *embed.Node, s *embed.Session, end func()) {
	dir, err := os.MkdirTemp("", "example-")
	if err != nil {
		stdlog.Fatal(err)
	}
	n, err = embed.Start(embed.Config{
		Dir: dir, Tick: 10 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
		RequestTimeout: time.Minute, SessionTimeout: time.Minute, // a machine that runs tests may be busy
	})
	if err != nil {
		stdlog.Fatal(err)
	}
	s, err = n.NewSession(context.Background(), embed.SessionOptions{})
	if err != nil {
		stdlog.Fatal(err)
	}
	return n, s, func() { _ = n.Close(); _ = os.RemoveAll(dir) }
}

// Each process of a service runs this. Each tick runs in one of them.
func ExampleRun() {
	node, session, end := start()
	defer end()
	ctx, cancel := context.WithCancel(context.Background())
	err := job.Run(ctx, node, "/jobs", job.Job{
		Name:     "report",
		Schedule: job.Every(time.Second),
		Crash:    job.AtLeastOnce,
		Run: func(ctx context.Context, tick *job.Tick) error {
			fmt.Println("attempt", tick.Attempt, "of a whole second:", tick.Time.Nanosecond() == 0)
			cancel() // as a rule, Run goes on until the process ends
			return nil
		},
	})
	fmt.Println(err)
	history, err := job.History(context.Background(), session, "/jobs", "report")
	fmt.Println(len(history), history[0].State, err)
	// Output:
	// attempt 1 of a whole second: true
	// context canceled
	// 1 done <nil>
}

// What the tick writes to the tree is written once, even if the tick runs again.
func ExampleTick_Commit() {
	_ = job.Job{
		Name:     "invoices",
		Schedule: job.Every(24 * time.Hour),
		Crash:    job.AtLeastOnce,
		Run: func(ctx context.Context, tick *job.Tick) error {
			return tick.Commit(embed.OpAdd("/jobs/sum", 1, embed.Int64))
		},
	}
}

func ExampleOnce() {
	node, _, end := start()
	defer end()
	for range 2 {
		version, err := job.Once(context.Background(), node, "/migrations/7",
			func(ctx context.Context, t lock.Token) ([]byte, error) {
				fmt.Println("this process migrates")
				return []byte("7"), nil
			})
		fmt.Println(string(version), err)
	}
	// Output:
	// this process migrates
	// 7 <nil>
	// 7 <nil>
}

func ExampleReserve() {
	_, session, end := start()
	defer end()
	ctx := context.Background()
	mine, err := job.Reserve(ctx, session, "/reserved/report", "host-1", time.Hour)
	if err != nil {
		stdlog.Fatal(err)
	}
	_, err = job.Reserve(ctx, session, "/reserved/report", "host-2", time.Hour)
	fmt.Println(errors.Is(err, job.ErrReserved))
	fmt.Println(mine.Err(), mine.Release())
	// Output:
	// true
	// <nil> <nil>
}
