// Election runs three members in this process, has them elect one of themselves, and stops the elected one: the others
// elect another.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/election"
	"github.com/vivarium-go/vivarium/embed/lock"
)

const path = "/election"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := run(ctx); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "vivarium-election-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	nodes, err := start(dir)
	if err != nil {
		return err
	}
	var candidates sync.WaitGroup
	defer candidates.Wait()
	for _, node := range nodes {
		defer node.Close()
	}
	elected := make(chan embed.MemberID)
	for id, node := range nodes {
		candidates.Go(func() { campaign(ctx, id, node, elected) })
	}
	first, err := next(ctx, elected)
	if err != nil {
		return err
	}
	fmt.Printf("member %d shuts down\n", first)
	// A farewell: its sessions end now, so the others need not wait for their timeout.
	if err := nodes[first].Shutdown(ctx); err != nil {
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
		<-ctx.Done() // the work of the elected one goes here, and ends when this does
		fmt.Println(name, "leads no more:", context.Cause(ctx))
		return nil
	})
	if !errors.Is(err, embed.ErrClosed) {
		fmt.Println(name, "campaigns no more:", err)
	}
}

// start starts three members on loopback ports that were free a moment ago; if one is not any more, on others.
func start(dir string) (map[embed.MemberID]*embed.Node, error) {
	for try := 0; ; try++ {
		addrs, err := freeAddrs(3)
		if err != nil {
			return nil, err
		}
		nodes := make(map[embed.MemberID]*embed.Node)
		for id := range addrs {
			nodes[id], err = embed.Start(embed.Config{
				Dir: filepath.Join(dir, fmt.Sprintf("try-%d-member-%d", try, id)), ID: id, Members: addrs,
				// Members of another run that gets one of these ports must not talk to these.
				Ensemble: "election-" + strconv.Itoa(os.Getpid()), Logger: slog.New(slog.DiscardHandler),
			})
			if err != nil {
				delete(nodes, id)
				break
			}
		}
		if err == nil {
			return nodes, nil
		}
		for _, node := range nodes {
			_ = node.Close() // of use to nobody
		}
		if !errors.Is(err, syscall.EADDRINUSE) || try == 10 {
			return nil, err
		}
	}
}

func freeAddrs(n int) (map[embed.MemberID]string, error) {
	addrs := make(map[embed.MemberID]string)
	for id := embed.MemberID(1); int(id) <= n; id++ {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close() // all at the end, so that no port is chosen twice
		addrs[id] = l.Addr().String()
	}
	return addrs, nil
}
