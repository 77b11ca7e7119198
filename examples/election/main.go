// Election runs three members in this process. They elect one of themselves; when it stops, the
// others elect another.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"sync"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/election"
	"github.com/vivarium-go/vivarium/embed/lock"
	"github.com/vivarium-go/vivarium/examples/internal/nodes"
)

const path = "/election"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	members, end, err := nodes.Three("election")
	if err != nil {
		return err
	}
	var candidates sync.WaitGroup
	defer candidates.Wait()
	defer end()
	elected := make(chan embed.MemberID)
	for id, node := range members {
		candidates.Go(func() { campaign(ctx, id, node, elected) })
	}
	first, err := next(ctx, elected)
	if err != nil {
		return err
	}
	fmt.Printf("member %d shuts down\n", first)
	// Shutdown ends the member's sessions now, so the others need not wait for the sessions'
	// timeout.
	if err := members[first].Shutdown(ctx); err != nil {
		return err
	}
	_, err = next(ctx, elected)
	return err
}

func next(ctx context.Context, elected <-chan embed.MemberID) (embed.MemberID, error) {
	select {
	case id := <-elected:
		return id, nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// campaign leads whenever the member is elected, until its node ends.
func campaign(ctx context.Context, id embed.MemberID, node *embed.Node, elected chan<- embed.MemberID) {
	name := fmt.Sprint("member ", id)
	err := election.Run(ctx, node, path, []byte(name), func(ctx context.Context, t lock.Token) error {
		fmt.Println(name, "is elected, token", t)
		select {
		case elected <- id:
		case <-ctx.Done():
		}
		<-ctx.Done() // the elected member's work goes here, and ends with ctx
		fmt.Println(name, "no longer leads:", context.Cause(ctx))
		return nil
	})
	if !errors.Is(err, embed.ErrClosed) {
		fmt.Println(name, "no longer campaigns:", err)
	}
}
