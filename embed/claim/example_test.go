package claim_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"os"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/claim"
)

// enter claims a place in the queue below /queue and returns the claim with its znode's path.
func enter(ctx context.Context, session *embed.Session) (*claim.Claim, string, error) {
	c, err := claim.New(ctx, session, embed.OpCreate("/queue/c-", nil, embed.EphemeralSequential))
	if err != nil {
		return nil, "", err
	}
	results, err := c.Created(ctx)
	if err != nil {
		_ = c.Release() // the node deletes the znode if it was created after all
		return nil, "", err
	}
	return c, results[0].Path, nil
}

// wait waits until no contender is ahead of path, and then holds the claim.
func wait(ctx context.Context, session *embed.Session, c *claim.Claim, path string) (*claim.Tenure, error) {
	for {
		ahead, ok, err := claim.Before(ctx, session, path)
		if err != nil {
			return nil, err
		}
		if !ok {
			return c.Hold(false)
		}
		if err := waitFor(ctx, session, c, "/queue/"+ahead); err != nil {
			return nil, err
		}
	}
}

// waitFor waits until the znode of a contender is gone.
func waitFor(ctx context.Context, session *embed.Session, c *claim.Claim, path string) error {
	watch, err := session.Watch(ctx, path, embed.WatchOnce)
	if err != nil {
		return err
	}
	defer watch.Close()
	if _, ok, err := session.Exists(ctx, path); err != nil || !ok { // it may have gone before
		return err
	}
	select {
	case <-watch.Events():
		return nil
	case <-c.Done():
		return c.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// A contender was lost, but may still have a write on its way to another shard. Its znode had a
// TTL, so it lingers and keeps others out meanwhile. Its heir takes the place in one transaction.
// Until the heir holds its claim, its own znode would linger too.
func ExampleOpInherit() {
	inherit := func(ctx context.Context, heir *embed.Session, lingering string) (*claim.Claim, error) {
		return claim.New(ctx, heir, claim.OpInherit(lingering),
			embed.OpCreateWith("/queue/c-", nil, embed.CreateOptions{Mode: embed.EphemeralSequential, TTL: time.Minute}))
	}
	_ = inherit
}

// A lock made of claims: contenders queue, each watches only the contender ahead, and the first
// holds its claim.
func Example() {
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
	ctx := context.Background()
	session, err := node.NewSession(ctx, embed.SessionOptions{})
	if err != nil {
		log.Fatal(err)
	}
	for _, path := range []string{"/queue", "/report"} {
		if _, err := session.Create(ctx, path, nil, embed.Persistent); err != nil {
			log.Fatal(err)
		}
	}

	first, firstPath, err := enter(ctx, session)
	if err != nil {
		log.Fatal(err)
	}
	second, secondPath, err := enter(ctx, session)
	if err != nil {
		log.Fatal(err)
	}
	tenure, err := wait(ctx, session, first, firstPath)
	if err != nil {
		log.Fatal(err)
	}
	// The Multi is applied only while the first contender holds its claim.
	_, err = session.Multi(ctx, claim.OpGuard(tenure), embed.OpSet("/report", []byte("1"), embed.AnyVersion))
	fmt.Println("written:", err == nil)
	fmt.Println("released:", first.Release() == nil)

	next, err := wait(ctx, session, second, secondPath)
	fmt.Println("the next holds:", err == nil && next.Err() == nil)
	_, err = session.Multi(ctx, claim.OpGuard(tenure), embed.OpSet("/report", []byte("2"), embed.AnyVersion))
	fmt.Println("the former writes:", err == nil)
	fmt.Println("released:", second.Release() == nil)
	// Output:
	// written: true
	// released: true
	// the next holds: true
	// the former writes: false
	// released: true
}
