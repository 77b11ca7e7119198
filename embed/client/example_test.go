package client_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"os"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/client"
	"github.com/vivarium-go/vivarium/embed/gateway"
	"github.com/vivarium-go/vivarium/embed/lock"
)

// A member opens its tree to clients, and a client takes a lock there. The two would be processes of
// their own.
func Example() {
	dir, err := os.MkdirTemp("", "vivarium-client-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	quiet := slog.New(slog.DiscardHandler)
	node, err := embed.Start(embed.Config{Dir: dir, Logger: quiet})
	if err != nil {
		log.Fatal(err)
	}
	defer node.Close()
	door, err := gateway.Start(node, gateway.Config{Listen: "127.0.0.1:0"})
	if err != nil {
		log.Fatal(err)
	}
	defer door.Close()

	c, err := client.New(client.Config{Servers: []string{door.Addr().String()}, Logger: quiet})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	err = lock.Do(context.Background(), c, "/nightly", func(_ context.Context, t lock.Token) error {
		fmt.Println("holds the lock:", t.Zxid > 0)
		return nil
	})
	fmt.Println("error:", err)
	// Output:
	// holds the lock: true
	// error: <nil>
}
