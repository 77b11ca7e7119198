//go:build linux

package main

import (
	"fmt"
	"slices"
	"strconv"
	"time"
)

// A recipe is one measurement of a client that brings recipes. It has the figures of one or several
// lines.
type recipe struct {
	suite   string
	on      []string // the lines' On, in the order of the figures
	clients int      // the lines' Clients
	rate    bool     // the figure is a rate per second; otherwise it is a time in milliseconds
	// words ask a player for n of clients, in a place of its own: the path of its first znode. They
	// are nil in the suite partition.
	words func(place string, n int, window time.Duration) string
}

// A player is an ensemble with a client that brings recipes. It plays what words ask for, and
// returns the figures.
type player interface {
	play(words string) ([]float64, error)
}

// handOver are the figures of a member that joins, and of its death.
var handOver = []string{"join: settled", "join: without owner", "death: settled", "death: without owner"}

// recipes are all measurements of suites view, counter, task and partition.
var recipes = []recipe{
	{suite: "view", on: []string{"all arrive", "open"}, clients: 10_000,
		words: func(place string, n int, _ time.Duration) string { return fmt.Sprintf("view %s %d", place, n) }},
	counterRecipe(1), counterRecipe(64), counterRecipe(1024),
	flowRecipe("claim", 1), flowRecipe("claim", 64), flowRecipe("take", 1), flowRecipe("take", 64),
	{suite: "task", on: []string{"drain by 12"}, clients: 10_000, rate: true,
		words: func(place string, n int, window time.Duration) string {
			return fmt.Sprintf("drain %s %d 12 %s", place, n, ms(window))
		}},
	{suite: "partition", on: handOver, clients: 1000},
}

func counterRecipe(callers int) recipe {
	return recipe{suite: "counter", on: []string{"add"}, clients: callers, rate: true,
		words: func(place string, _ int, window time.Duration) string {
			return fmt.Sprintf("counter %s %d %s", place, callers, ms(window))
		}}
}

func flowRecipe(kind string, callers int) recipe {
	return recipe{suite: "task", on: []string{kind}, clients: callers, rate: true,
		words: func(place string, _ int, window time.Duration) string {
			return fmt.Sprintf("flow %s %s %d %s", kind, place, callers, ms(window))
		}}
}

// ms returns a time in milliseconds, as words have it.
func ms(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// recipeLines returns the lines of a suite of recipes.
func recipeLines(suite string) (all []line) {
	for _, r := range recipes {
		if r.suite == suite {
			all = append(all, lines(r.on, r.clients)...)
		}
	}
	return all
}

// recipeOf returns the recipe with the figure of a line.
func recipeOf(suite string, l line) recipe {
	for _, r := range recipes {
		if r.suite == suite && r.clients == l.Clients && slices.Contains(r.on, l.On) {
			return r
		}
	}
	panic(fmt.Sprintf("no recipe for %s %+v", suite, l))
}

// measureRecipe measures a recipe. It keeps the figures of other lines until they are asked for.
func measureRecipe(w *worker, l line) (figures, error) {
	r := recipeOf(w.Suite, l)
	if len(w.played[l]) == 0 {
		numbers, err := w.play(r)
		if err != nil {
			return figures{}, err
		}
		for k, on := range r.on {
			one := line{On: on, Clients: r.clients}
			w.played[one] = append(w.played[one], numbers[k])
		}
	}
	number := w.played[l][0]
	w.played[l] = w.played[l][1:]
	if r.rate {
		return figures{Rate: number}, nil
	}
	return once(max(time.Duration(number*float64(time.Millisecond)), time.Nanosecond)), nil
}

// play plays a recipe. Before the first time it plays a tenth of it, which warms JVMs.
func (w *worker) play(r recipe) ([]float64, error) {
	n := w.scaled(r.clients)
	if r.words == nil {
		return measurePartition(w, max(n, members))
	}
	p, ok := w.e.(player)
	if !ok {
		return nil, errMissing
	}
	if key := r.suite + r.on[0] + strconv.Itoa(r.clients); !w.warm[key] {
		w.warm[key] = true
		if _, err := p.play(r.words(w.path(), (n+9)/10, max(w.Window/4, time.Millisecond))); err != nil {
			return nil, err
		}
	}
	numbers, err := p.play(r.words(w.path(), n, w.Window))
	if err == nil && len(numbers) != len(r.on) {
		err = fmt.Errorf("%s %v: the figures are %v", r.suite, r.on, numbers)
	}
	return numbers, err
}
