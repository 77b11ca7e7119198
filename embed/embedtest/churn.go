package embedtest

import (
	"context"
	"slices"
	"time"

	"github.com/vivarium-go/vivarium/embed"
)

// newcomers is how many members come and go in a churn. All of them vote most of the time.
const newcomers = 2

// A churn lets members come and go while a test uses the founders of its ensemble. Of the voters at
// most one is missing, so the founders have a quorum as long as one of them at most is missing too.
// The founders' ids are their places.
type churn struct {
	e       *Ensemble
	places  []embed.MemberID
	ctx     context.Context // ends with the test; nil until the churn begins
	cancel  context.CancelFunc
	ended   chan struct{}
	changes int // that have begun; owned by run
}

// begin lets members join, and lets them come and go once they vote.
func (c *churn) begin() {
	c.e.t.Helper()
	c.e.Until("the table of members", func() bool {
		return !slices.ContainsFunc(c.e.Node(1).Members(), func(m embed.Member) bool { return m.Name == "" })
	})
	for range newcomers {
		c.places = append(c.places, c.e.AddPlace())
		c.e.Start(c.places[len(c.places)-1])
	}
	c.e.Until("the newcomers to vote", c.complete)
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.ended = make(chan struct{})
	go c.run()
}

// end lets nobody come or go any more.
func (c *churn) end() {
	if c.ctx == nil {
		return
	}
	c.cancel()
	<-c.ended
	c.e.t.Logf("members have come and gone: %d changes", c.changes)
}

// run changes one member after the other.
func (c *churn) run() {
	defer close(c.ended)
	for n := 0; ; n++ {
		place := c.places[n%newcomers]
		if n/newcomers%2 == 0 {
			c.leave(place)
		} else {
			c.wipe(place)
		}
		c.changes++
		for c.start(place); !c.complete(); c.start(place) {
			select {
			case <-c.ctx.Done():
				return
			case <-time.After(c.e.longestTick()):
			}
		}
	}
}

// leave lets a newcomer leave. If that is refused, it stays.
func (c *churn) leave(place embed.MemberID) {
	n := c.e.nodeIn(place)
	ctx, cancel := context.WithTimeout(c.ctx, c.e.patience())
	defer cancel()
	if err := n.Leave(ctx); err == nil || isOver(n) {
		c.e.remove(place)
		c.e.release(place)
	}
}

// wipe kills a newcomer and empties its directory.
func (c *churn) wipe(place embed.MemberID) {
	n := c.e.remove(place)
	engineOf(n).Kill()
	c.close(place, n)
	c.e.Wipe(place)
}

func (c *churn) close(place embed.MemberID, n *embed.Node) {
	if err := n.Close(); err != nil {
		c.e.t.Errorf("member %d: %v%s", place, err, inTheWay(err))
	}
	c.e.release(place)
}

// start starts a member in a place where none runs, or where it has learned that it is out.
func (c *churn) start(place embed.MemberID) {
	switch n := c.e.nodeIn(place); {
	case n != nil && !isOver(n):
		return
	case n != nil:
		c.close(place, c.e.remove(place))
	}
	if _, err := c.e.TryStart(place); err != nil {
		c.e.t.Errorf("member %d: %v", place, err)
	}
}

// complete reports whether just the founders and all newcomers vote, on all shards, as some founder
// knows.
func (c *churn) complete() bool {
	want := slices.Clone(c.e.found)
	for _, place := range c.places {
		n := c.e.nodeIn(place)
		if n == nil {
			return false
		}
		want = append(want, n.Status().Member)
	}
	slices.Sort(want)
	return slices.ContainsFunc(c.e.found, func(founder embed.MemberID) bool {
		n := c.e.nodeIn(founder)
		if n == nil {
			return false
		}
		var voters []embed.MemberID
		for _, m := range n.Members() {
			switch Votes(n, m.ID) {
			case 0:
			case len(n.Status().Shards):
				voters = append(voters, m.ID)
			default:
				return false
			}
		}
		return slices.Equal(voters, want)
	})
}

// nodeIn returns the node that runs in a place, or nil.
func (e *Ensemble) nodeIn(place embed.MemberID) *embed.Node {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.running[place]
}

// isOver reports whether a node has failed or is closed.
func isOver(n *embed.Node) bool {
	select {
	case <-n.Done():
		return true
	default:
		return false
	}
}
