package election_test

import (
	"context"
	"fmt"
	"log"
	"strings"
	"sync"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/election"
	"github.com/vivarium-go/vivarium/embed/lock"
)

// A Latch stands for election as long as it lives, and tells at any time whether it leads.
func ExampleLatch() {
	node, end := start()
	defer end()
	latch := election.NewLatch(node, "/scheduler", []byte("replica 1"), election.Options{})
	defer latch.Close()
	for leads := range latch.Changes(context.Background()) { // nil while it does not lead
		if leads != nil {
			fmt.Println("leads:", leads.Err() == nil)
			break // a service goes on as long as it lives
		}
	}
	fmt.Println("leads still:", latch.IsLeader())
	_ = latch.Close()
	fmt.Println("leads when it is closed:", latch.IsLeader())
	// Output:
	// leads: true
	// leads still: true
	// leads when it is closed: false
}

// A candidate with a priority goes ahead of those that wait with a lower one. A leader can give its
// place to a candidate of its choice.
func ExampleLeadership_Transfer() {
	node, end := start()
	defer end()
	ctx := context.Background()
	enter := func(name string, priority int) *election.Candidate {
		session, err := node.NewSession(ctx, embed.SessionOptions{})
		if err != nil {
			log.Fatal(err)
		}
		c, err := election.New(session, "/scheduler").Enter(ctx, []byte(name), election.Options{Priority: priority})
		if err != nil {
			log.Fatal(err)
		}
		return c
	}
	first, second := enter("replica 1", 0), enter("replica 2", 0)
	_ = enter("replica 3", 10)
	leads, err := first.Wait(ctx)
	if err != nil {
		log.Fatal(err)
	}
	session, err := node.NewSession(ctx, embed.SessionOptions{})
	if err != nil {
		log.Fatal(err)
	}
	show := func() {
		queue, err := election.New(session, "/scheduler").Candidates(ctx)
		if err != nil {
			log.Fatal(err)
		}
		var names []string
		for _, c := range queue {
			names = append(names, string(c.Value))
		}
		fmt.Println(strings.Join(names, ", "))
	}
	show()

	var waiting sync.WaitGroup
	waiting.Go(func() {
		next, err := second.Wait(ctx)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("replica 2 leads, with a greater token:", next.Token().Compare(leads.Token()) > 0)
	})
	if err := leads.Transfer(ctx, second.Path()); err != nil {
		log.Fatal(err)
	}
	waiting.Wait()
	show()
	// Output:
	// replica 1, replica 3, replica 2
	// replica 2 leads, with a greater token: true
	// replica 2, replica 3
}

// Two processes share four jobs. One process at a time leads each job.
func ExampleBalance() {
	node, end := start()
	defer end()
	ctx, cancel := context.WithCancel(context.Background())
	jobs := []string{"backups", "billing", "index", "mail"}
	type led struct{ job, process string }
	leads := make(chan led)
	var processes sync.WaitGroup
	for _, process := range []string{"one", "two"} {
		processes.Go(func() {
			_ = election.Balance(ctx, node, "/jobs", jobs, []byte(process), func(ctx context.Context, job string, _ lock.Token) error {
				select {
				case leads <- led{job, process}:
				case <-ctx.Done():
				}
				<-ctx.Done() // the work, until another process is to do it
				return nil
			})
		})
	}
	who := make(map[string]string)
	shares := make(map[string]int)
	for shares["one"] != 2 || shares["two"] != 2 {
		t := <-leads
		shares[who[t.job]]--
		who[t.job] = t.process
		shares[t.process]++
	}
	cancel()
	processes.Wait()
	fmt.Println(shares["one"], "and", shares["two"])
	// Output:
	// 2 and 2
}
