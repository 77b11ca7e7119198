package discovery_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"os"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/discovery"
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

// One process registers itself, another one finds it. Java clients with Curator's service discovery
// may be either of them.
func Example() {
	ctx := context.Background()
	node, session, end := start(ctx)
	defer end()
	uri, err := discovery.ParseURI("{scheme}://{address}:{port}/v1")
	if err != nil {
		log.Fatal(err)
	}
	here := discovery.Register(node, "/services", discovery.Instance{
		Name: "billing", ID: "billing-1", Address: "10.0.0.1", Port: 8080, Registered: time.Now(), URI: uri,
	})
	defer here.Close()

	billing, err := discovery.Watch(ctx, session, "/services", "billing")
	if err != nil {
		log.Fatal(err)
	}
	defer billing.Close()
	for instances, err := range billing.Changes(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		if len(instances) > 0 {
			break // there is one
		}
	}
	pick := discovery.RoundRobin()
	if instance, ok := billing.Pick(pick); ok {
		fmt.Println(instance.ID, "is at", instance.URI.Build(instance, nil))
	}
	// Output: billing-1 is at http://10.0.0.1:8080/v1
}
