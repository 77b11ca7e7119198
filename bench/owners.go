//go:build linux

package main

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// An event is that a member has got a part, or is about to give it up.
type event struct {
	member int
	gets   bool
	at     int64 // Unix time in nanoseconds
	part   string
}

// readEvent reads a member's line: "+ TIME PART" or "- TIME PART".
func readEvent(member int, text string) (event, error) {
	w := strings.Fields(text)
	if len(w) != 3 || w[0] != "+" && w[0] != "-" {
		return event{}, fmt.Errorf("member %d said %q", member, text)
	}
	at, err := strconv.ParseInt(w[1], 10, 64)
	return event{member: member, gets: w[0] == "+", at: at, part: w[2]}, err
}

// owners follows who owns what. The events of one member come in order, those of several members in
// any order.
type owners struct {
	parts int
	at    map[string]map[int]int // for each part how often each member has it: 0 or 1
	held  map[int]int            // how many parts each member has
	whole int                    // how many parts have one owner
	news  []event                // since the last call of begin
}

func newOwners(parts int) *owners {
	return &owners{parts: parts, at: make(map[string]map[int]int), held: make(map[int]int)}
}

// see takes in an event.
func (o *owners) see(e event) {
	o.news = append(o.news, e)
	if o.at[e.part] == nil {
		o.at[e.part] = make(map[int]int)
	}
	one := -1
	if e.gets {
		one = 1
	}
	if o.count(e.part) == 1 {
		o.whole--
	}
	o.at[e.part][e.member] += one
	o.held[e.member] += one
	if o.count(e.part) == 1 {
		o.whole++
	}
}

func (o *owners) count(part string) (n int) {
	for _, has := range o.at[part] {
		n += has
	}
	return n
}

// lose takes in that a member has lost all its parts, because it died.
func (o *owners) lose(member int, at time.Time) {
	for part, by := range o.at {
		if by[member] > 0 {
			o.see(event{member: member, at: at.UnixNano(), part: part})
		}
	}
}

// settled reports whether every part has one owner, and n members share them evenly.
func (o *owners) settled(n int) bool {
	have := 0
	for _, held := range o.held {
		if held > (o.parts+n-1)/n {
			return false
		}
		if held > 0 {
			have++
		}
	}
	return o.whole == o.parts && have == n
}

// begin begins a hand-over.
func (o *owners) begin() { o.news = nil }

// took returns how long the hand-over that began at a time took, and how long a part had no owner
// meanwhile, on average over all parts. It is an error if a part had two owners.
func (o *owners) took(begun time.Time) (all, idle time.Duration, err error) {
	slices.SortStableFunc(o.news, func(a, b event) int { return cmp.Compare(a.at, b.at) })
	lost := make(map[string]int64)
	for _, e := range o.news {
		all = max(all, time.Duration(e.at-begun.UnixNano()))
		switch at, without := lost[e.part]; {
		case !e.gets:
			lost[e.part] = e.at
		case without:
			idle += time.Duration(e.at - at)
			delete(lost, e.part)
		default:
			return 0, 0, fmt.Errorf("member %d got %s while another had it", e.member, e.part)
		}
	}
	return all, idle / time.Duration(o.parts), nil
}
