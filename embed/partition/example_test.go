package partition_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/lock"
	"github.com/vivarium-go/vivarium/embed/partition"
)

// Every process of the service calls Run with the same parts. Here there is one, so it owns all.
func ExampleRun() {
	dir, err := os.MkdirTemp("", "example-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	node, err := embed.Start(embed.Config{Dir: dir, Tick: 10 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		log.Fatal(err)
	}
	defer node.Close()

	ctx, cancel := context.WithCancel(context.Background())
	parts := []string{"customers", "invoices", "orders"}
	var owned sync.WaitGroup
	owned.Add(len(parts))
	go func() {
		owned.Wait()
		cancel()
	}()
	err = partition.Run(ctx, node, "/indexer", parts, partition.Options{},
		func(ctx context.Context, part string, h *lock.Hold) error {
			owned.Done() // load what the part needs, and work on it
			<-ctx.Done() // the part moves, is lost, or the service ends
			return nil   // its next owner begins now
		})
	fmt.Println("ended by its ctx:", errors.Is(err, context.Canceled))
	// Output:
	// ended by its ctx: true
}
