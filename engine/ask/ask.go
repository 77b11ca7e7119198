package ask

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/vivarium-go/vivarium/replication/transport"
	"golang.org/x/sync/errgroup"
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

// A Silence is an address that gave no answer.
type Silence struct {
	Name string // for which the address stands
	Why  string // with the address
}

// All asks everybody at these places. It leaves out who asks.
func All(ctx context.Context, by *transport.Transport, network transport.Network, names []string, q Question) (answers []Answer, silent []Silence) {
	places, silent := Resolve(ctx, network, names)
	for _, r := range Each(ctx, by, places, q) {
		switch {
		case r.Err != nil:
			silent = append(silent, Silence{r.At.Name, fmt.Sprintf("%s: %v", r.At.Address, r.Err)})
		case r.Got.Directory != q.Directory:
			answers = append(answers, r.Got)
		}
	}
	slices.SortFunc(silent, func(a, b Silence) int { return strings.Compare(a.Why, b.Why) })
	slices.SortFunc(answers, func(a, b Answer) int { return slices.Compare(a.Directory[:], b.Directory[:]) })
	return slices.CompactFunc(answers, func(a, b Answer) bool { return a.Directory == b.Directory }), silent
}

// A Place is where to ask.
type Place struct {
	transport.Target
	Name string // for which it stands
}

// A Result is what came of a question at one place.
type Result struct {
	At  Place
	Got Answer
	Err error
}

// Each asks at all these places, AtOnceMax at the same time. Each has Time to answer.
func Each(ctx context.Context, by *transport.Transport, places []Place, q Question) []Result {
	results := make([]Result, len(places))
	var group errgroup.Group
	group.SetLimit(AtOnceMax)
	for i, at := range places {
		group.Go(func() error {
			ctx, cancel := context.WithTimeout(ctx, Time)
			defer cancel()
			got, err := Ask(ctx, by, at.Target, q)
			results[i] = Result{at, got, err}
			return nil
		})
	}
	_ = group.Wait() // the results have the errors
	return results
}

// Resolve returns all places to ask, each once, under the first of its names. A name may stand for
// several.
func Resolve(ctx context.Context, network transport.Network, names []string) (places []Place, silent []Silence) {
	ctx, cancel := context.WithTimeout(ctx, Time)
	defer cancel()
	known := make(map[string]bool)
	for _, name := range names {
		found, err := network.Resolve(ctx, name)
		if err != nil {
			silent = append(silent, Silence{name, fmt.Sprintf("%s: %v", name, err)})
		}
		for _, to := range found {
			if !known[to.Address] {
				known[to.Address] = true
				places = append(places, Place{to, name})
			}
		}
	}
	return places, silent
}
