// Leader shows three members that lead in turn. Each has a Latch, which campaigns in the
// background. Arrival, priority and a transfer decide who leads. Then the members share six jobs,
// each of which has one leader.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/election"
	"github.com/vivarium-go/vivarium/embed/lock"
	"github.com/vivarium-go/vivarium/examples/internal/nodes"
)

const path = "/leader"

var jobs = []string{"backups", "billing", "index", "mail", "metrics", "reports"}

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
	members, end, err := nodes.Three("leader")
	if err != nil {
		return err
	}
	defer end()
	if err := lead(ctx, members); err != nil {
		return err
	}
	return share(ctx, members)
}

// lead lets the members lead one after the other.
func lead(ctx context.Context, nodes map[embed.MemberID]*embed.Node) error {
	s, err := nodes[1].NewSession(ctx, embed.SessionOptions{})
	if err != nil {
		return err
	}
	defer s.Close()
	latches := make(map[embed.MemberID]*election.Latch)
	stand := func(id embed.MemberID, o election.Options, queue ...string) ([]election.Standing, error) {
		latches[id] = election.NewLatch(nodes[id], path, fmt.Append(nil, "member ", id), o)
		return stands(ctx, election.New(s, path), queue...)
	}
	defer func() {
		for _, l := range latches {
			_ = l.Close()
		}
	}()
	if _, err := stand(1, election.Options{}, "member 1"); err != nil {
		return err
	}
	first, err := elected(ctx, latches[1])
	if err != nil {
		return err
	}
	fmt.Println("member 1 came first and leads, token", first.Token())
	if _, err := stand(2, election.Options{}, "member 1", "member 2"); err != nil {
		return err
	}
	// Member 3 goes ahead of those that wait, but nobody loses the leadership.
	queue, err := stand(3, election.Options{Priority: 10}, "member 1", "member 3", "member 2")
	if err != nil {
		return err
	}
	fmt.Println("member 2 waits; member 3 has a priority and waits ahead of it")

	// A deliberate transfer, as before work on a machine: it goes past those that wait.
	if err := first.Transfer(ctx, queue[2].Path); err != nil {
		return err
	}
	second, err := elected(ctx, latches[2])
	if err != nil {
		return err
	}
	fmt.Println("member 1 transferred the leadership to member 2, token", second.Token())
	fmt.Println("member 1 still leads:", latches[1].IsLeader())

	if err := second.Resign(); err != nil {
		return err
	}
	third, err := elected(ctx, latches[3])
	if err != nil {
		return err
	}
	fmt.Println("member 2 has resigned, and member 3 leads, token", third.Token())
	return nil
}

// stands waits until candidates stand in an order, and returns them.
func stands(ctx context.Context, e *election.Election, names ...string) (list []election.Standing, err error) {
	err = until(ctx, func() (bool, error) {
		list, err = e.Candidates(ctx)
		return slices.EqualFunc(list, names, func(c election.Standing, name string) bool { return string(c.Value) == name }), err
	})
	return list, err
}

// elected waits until a member leads. A service would range over Changes for as long as it lives.
func elected(ctx context.Context, l *election.Latch) (*election.Leadership, error) {
	for now := range l.Changes(ctx) {
		if now != nil {
			return now, nil
		}
	}
	return nil, cmp.Or(l.Err(), ctx.Err())
}

// share lets the members share the jobs. When a member leaves, the others get its jobs.
func share(ctx context.Context, nodes map[embed.MemberID]*embed.Node) error {
	b := board{leads: make(map[string]embed.MemberID)}
	var members sync.WaitGroup
	ctx, cancel := context.WithCancelCause(ctx)
	defer members.Wait()
	defer cancel(nil)
	for id, node := range nodes {
		members.Go(func() {
			err := election.Balance(ctx, node, "/jobs", jobs, nil, func(ctx context.Context, job string, _ lock.Token) error {
				b.takes(job, id)
				defer b.leaves(job, id)
				<-ctx.Done() // the work goes here, and ends with ctx
				return nil
			})
			if !errors.Is(err, embed.ErrClosed) { // its node was closed
				cancel(err)
			}
		})
	}
	if err := b.print(ctx, 1, 2, 3); err != nil {
		return err
	}
	fmt.Println("member 3 shuts down")
	if err := nodes[3].Shutdown(ctx); err != nil {
		return err
	}
	return b.print(ctx, 1, 2)
}

// A board shows who leads which job.
type board struct {
	mu    sync.Mutex
	leads map[string]embed.MemberID
}

func (b *board) takes(job string, id embed.MemberID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.leads[job] = id
}

func (b *board) leaves(job string, id embed.MemberID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.leads[job] == id { // otherwise another member already leads it
		delete(b.leads, job)
	}
}

// print waits until members have the same number of jobs, and prints the jobs.
func (b *board) print(ctx context.Context, ids ...embed.MemberID) error {
	shares := make([][]string, len(ids))
	err := until(ctx, func() (bool, error) {
		b.mu.Lock()
		defer b.mu.Unlock()
		even := true
		for i, id := range ids {
			shares[i] = slices.DeleteFunc(slices.Clone(jobs), func(job string) bool { return b.leads[job] != id })
			even = even && len(shares[i]) == len(jobs)/len(ids)
		}
		return even, nil
	})
	for i, id := range ids {
		fmt.Printf("member %d leads %s\n", id, strings.Join(shares[i], ", "))
	}
	return err
}

// until polls for a condition that an example cannot wait for in another way.
func until(ctx context.Context, done func() (bool, error)) error {
	for {
		ok, err := done()
		if ok || err != nil {
			return err
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
