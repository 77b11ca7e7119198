package embedtest_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"syscall"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
)

// The disk of a service's member is full. Done and Err tell the service, which goes on, and starts
// the member again once there is space.
func ExampleStart() {
	dir, err := os.MkdirTemp("", "example-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	cfg := embed.Config{Dir: dir, Logger: slog.New(slog.DiscardHandler)}
	ctx := context.Background()

	faults := embedtest.NewFaults()
	node, err := embedtest.Start(cfg, faults)
	if err != nil {
		log.Fatal(err)
	}
	session, err := node.NewSession(ctx, embed.SessionOptions{})
	if err != nil {
		log.Fatal(err)
	}
	faults.SetDisk(embedtest.Disk{Err: syscall.ENOSPC, On: embedtest.Growth})
	_, err = session.Create(ctx, "/a", nil, embed.Persistent)
	fmt.Println("written:", err == nil)
	<-node.Done()
	fmt.Println("full:", errors.Is(node.Err(), syscall.ENOSPC))
	if err := node.Close(); err != nil {
		log.Fatal(err)
	}

	faults.SetDisk(embedtest.Disk{})
	if node, err = embedtest.Start(cfg, faults); err != nil {
		log.Fatal(err)
	}
	defer node.Close()
	fmt.Println("ready again:", node.Ready(ctx) == nil)
	// Output:
	// written: false
	// full: true
	// ready again: true
}
