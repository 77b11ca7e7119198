package ask

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/vivarium-go/vivarium/replication/transport"
)

const (
	// Time bounds one question that only asks who is there.
	Time = 3 * time.Second
	// AtOnceMax bounds the addresses that are asked at the same time. Names may stand for many.
	AtOnceMax = 64
	// HopsMax bounds how often a question is passed on to the leader.
	HopsMax = 4
)

// Ask asks one question at one place.
func Ask(ctx context.Context, by *transport.Transport, to transport.Target, q Question) (Answer, error) {
	var a Answer
	text, err := json.Marshal(q)
	if err != nil {
		return a, err
	}
	got, err := by.Ask(ctx, to, text)
	if err != nil {
		return a, err
	}
	if err := json.Unmarshal(got, &a); err != nil {
		return a, fmt.Errorf("the answer cannot be read: %w", err)
	}
	return a, nil
}

// All asks everybody at these places. It leaves out who asks. silent says who gave no answer, and
// why.
func All(ctx context.Context, by *transport.Transport, network transport.Network, names []string, q Question) (answers []Answer, silent []string) {
	targets, silent := Resolve(ctx, network, names)
	for _, r := range Each(ctx, by, targets, q) {
		switch {
		case r.Err != nil:
			silent = append(silent, fmt.Sprintf("%s: %v", r.At.Address, r.Err))
		case r.Got.Directory != q.Directory:
			answers = append(answers, r.Got)
		}
	}
	slices.Sort(silent)
	slices.SortFunc(answers, func(a, b Answer) int { return slices.Compare(a.Directory[:], b.Directory[:]) })
	return slices.CompactFunc(answers, func(a, b Answer) bool { return a.Directory == b.Directory }), silent
}

// A Result is what came of a question at one place.
type Result struct {
	At  transport.Target
	Got Answer
	Err error
}

// Each asks at all these places, AtOnceMax at the same time. Each has Time to answer.
func Each(ctx context.Context, by *transport.Transport, targets []transport.Target, q Question) []Result {
	results := make([]Result, len(targets))
	turns := make(chan struct{}, AtOnceMax)
	var group sync.WaitGroup
	for i, to := range targets {
		turns <- struct{}{}
		group.Go(func() {
			defer func() { <-turns }()
			ctx, cancel := context.WithTimeout(ctx, Time)
			defer cancel()
			got, err := Ask(ctx, by, to, q)
			results[i] = Result{to, got, err}
		})
	}
	group.Wait()
	return results
}

// Resolve returns all places to ask, each once. A name may stand for several.
func Resolve(ctx context.Context, network transport.Network, names []string) (targets []transport.Target, silent []string) {
	ctx, cancel := context.WithTimeout(ctx, Time)
	defer cancel()
	known := make(map[string]bool)
	for _, name := range names {
		found, err := network.Resolve(ctx, name)
		if err != nil {
			silent = append(silent, fmt.Sprintf("%s: %v", name, err))
		}
		for _, to := range found {
			if !known[to.Address] {
				known[to.Address] = true
				targets = append(targets, to)
			}
		}
	}
	return targets, silent
}
