package value_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/value"
)

// shared is a node that is an ensemble by itself. All examples use it, because a new ensemble needs
// some seconds before it knows the newest operations.
var shared = sync.OnceValue(func() *embed.Node {
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
	closeShared = func() { _ = n.Close(); _ = os.RemoveAll(dir) }
	return n
})

var closeShared = func() {}

func TestMain(m *testing.M) {
	m.Run()
	closeShared()
}

// start opens a session.
func start() (n *embed.Node, s *embed.Session, end func()) {
	n = shared()
	s, err := n.NewSession(context.Background(), embed.SessionOptions{})
	if err != nil {
		log.Fatal(err)
	}
	return n, s, func() { _ = s.Close() }
}

type flags struct{ Beta bool }

func ExampleValue_Changes() {
	_, session, end := start()
	defer end()
	ctx := context.Background()
	v := value.New(session, "/config/flags", value.JSON[flags]())
	if _, err := v.Set(ctx, flags{}); err != nil { // creates it
		log.Fatal(err)
	}
	for now, err := range v.Changes(ctx) {
		fmt.Println(now.Value.Beta, err)
		if now.Value.Beta {
			break
		}
		if _, err := v.Set(ctx, flags{Beta: true}); err != nil { // somebody else's, as a rule
			log.Fatal(err)
		}
	}
	// Output:
	// false <nil>
	// true <nil>
}

func ExampleValue_Update() {
	_, session, end := start()
	defer end()
	v := value.New(session, "/greeting", value.Codec[string]{})
	for range 2 {
		now, err := v.Update(context.Background(), func(now string, exists bool) (string, error) {
			if !exists {
				return "hello", nil
			}
			return now + ", world", nil
		})
		fmt.Println(now.Value, err)
	}
	// Output:
	// hello <nil>
	// hello, world <nil>
}

func ExampleBind() {
	_, session, end := start()
	defer end()
	var current atomic.Pointer[flags]
	current.Store(&flags{Beta: true}) // until there is another value
	stop, err := value.Bind(context.Background(), session, "/config/flags", value.JSON[flags](), &current, value.BindOptions[flags]{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(current.Load().Beta) // anywhere, at any time
	fmt.Println(stop())
	// Output:
	// true
	// <nil>
}

func ExampleCounter() {
	_, session, end := start()
	defer end()
	ctx := context.Background()
	jobs := value.NewCounter(session, "/jobs/done", embed.Int64)
	for range 2 {
		fmt.Println(jobs.Add(ctx, 5))
	}
	fmt.Println(jobs.Get(ctx))
	// Output:
	// 5 <nil>
	// 10 <nil>
	// 10 <nil>
}

func ExampleSequence() {
	node, _, end := start()
	defer end()
	orders := value.NewSequence(node, "/ids/orders", 1000)
	defer orders.Close()
	for range 3 {
		fmt.Println(orders.Next(context.Background())) // one commit in a thousand
	}
	// Output:
	// 0 <nil>
	// 1 <nil>
	// 2 <nil>
}

// Ids of a time, a worker number and a count, which fit into 63 bits.
func ExampleTakeNumber() {
	_, session, end := start()
	defer end()
	worker, err := value.TakeNumber(context.Background(), session, "/ids/workers", 1024, value.NumberOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer worker.Release()
	id := func(count int64) (int64, error) {
		now, err := worker.Now()
		if err != nil {
			return 0, err
		}
		return now.UnixMilli()<<22 | int64(worker.N())<<12 | count, nil
	}
	first, err := id(0)
	fmt.Println(worker.N(), first > 0, err)
	// Output: 0 true <nil>
}
