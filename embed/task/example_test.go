package task_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"os"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/task"
)

// start starts a node that is an ensemble by itself, and opens a session.
func start() (n *embed.Node, s *embed.Session, end func()) {
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
	s, err = n.NewSession(context.Background(), embed.SessionOptions{})
	if err != nil {
		log.Fatal(err)
	}
	return n, s, func() { _ = n.Close(); _ = os.RemoveAll(dir) }
}

// Work is what a process calls that works on the tasks: several times, for several at once.
func ExampleWork() {
	node, session, end := start()
	defer end()
	ctx, cancel := context.WithCancel(context.Background())
	mails := task.New(session, "/queues/mails", task.Options{})
	for _, text := range []string{"hello", "goodbye"} {
		if _, err := mails.Put(ctx, []byte(text), task.PutOptions{}); err != nil {
			log.Fatal(err)
		}
	}
	err := task.Work(ctx, node, "/queues/mails", task.Options{Attempts: 5},
		func(ctx context.Context, t *task.Task) error {
			fmt.Println(string(t.Data()))
			if string(t.Data()) == "goodbye" {
				cancel() // as a rule, Work goes on until the process ends
			}
			return nil
		})
	fmt.Println(err)
	// Output:
	// hello
	// goodbye
	// context canceled
}

// What Finish writes is written once, in the transaction that removes the task.
func ExampleTask_Finish() {
	_, session, end := start()
	defer end()
	ctx := context.Background()
	if _, err := session.Put(ctx, "/queues/sent", nil); err != nil {
		log.Fatal(err)
	}
	mails := task.New(session, "/queues/mails", task.Options{})
	if _, err := mails.Put(ctx, []byte("hello"), task.PutOptions{}); err != nil {
		log.Fatal(err)
	}
	t, err := mails.Claim(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(t.Attempt(), t.Err())
	fmt.Println(t.Finish(embed.OpSet("/queues/sent", t.Data(), embed.AnyVersion)))
	// Output:
	// 1 <nil>
	// <nil>
}
