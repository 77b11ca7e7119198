package transfer

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash/maphash"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vivarium-go/vivarium/cmd/vivarium/internal/client"
	"github.com/vivarium-go/vivarium/internal/wire"
)

// A Config says what to copy. From and To are required.
type Config struct {
	From, To Side

	Overwrite bool // go on where the target has znodes already; otherwise that is ErrExists
	Prune     bool // with Overwrite: delete what the target has at the start, and the source has not
	// RootStays leaves the data and the ACL of the target's root of the subtree as they are. Only
	// what is below it is copied and compared.
	RootStays bool

	// CutOver ends the copy when it is closed. If it is nil, Run does not follow changes: it ends as
	// soon as it has caught up.
	CutOver <-chan struct{}
	// Every is the time between the walks at a source without recursive watches, and between two
	// lines about progress. Zero means 10 s.
	Every time.Duration
	// Log receives lines about progress, without a line's end, one at a time. It may be nil.
	Log func(line string)
}

// A Result is what was copied, and how both sides compare at the end.
type Result struct {
	Counts
	Source, Target Summary
	Different      int          // how many znodes differ
	Differences    []Difference // the first of them
	// Again has the parents at the target that will give sequence numbers again which children have
	// already: their counters count only the children that were copied.
	Again []string
}

// Counts are of znodes at the target.
type Counts struct{ Created, Changed, Deleted int64 }

// String returns the counts in words.
func (c Counts) String() string {
	return fmt.Sprintf("%d created, %d changed, %d deleted", c.Created, c.Changed, c.Deleted)
}

// Equal reports whether both sides have the same znodes, with the same data and ACLs. It is false
// if they were not compared.
func (r *Result) Equal() bool {
	compared := r.Source.Digest != [sha256.Size]byte{} // the sum of nothing is another
	return compared && r.Different == 0 && r.Source.Digest == r.Target.Digest
}

// readOnly are the ops that a source is asked for.
var readOnly = map[wire.Op]bool{wire.OpExists: true, wire.OpGetData: true, wire.OpGetACL: true,
	wire.OpGetChildren2: true, wire.OpSync: true}

const (
	everyDefault = 10 * time.Second
	// settleMax bounds how often a source that goes on changing is caught up with at the cut-over.
	settleMax = 10
	// problemsMax bounds the znodes for which the reason is kept why they were not copied.
	problemsMax = 1000
)

// A copier is one copy.
type copier struct {
	// Immutable after Run has begun.
	cfg      Config
	from, to *side
	known    *known
	news     *news
	seed     maphash.Seed

	watching atomic.Bool // the source has recursive watches
	pruning  atomic.Bool // during the first walk, with Prune
	counts   struct{ walked, created, changed, deleted atomic.Int64 }

	locks [4 * workers]sync.Mutex // one is held while a znode is applied, by the hash of its name

	saying sync.Mutex // held during a call of Log

	mu       sync.Mutex
	problems map[string]error // why znodes are not copied, by name
}

// Run copies until the cut-over, and compares. It returns an error if it could not do that:
// ErrExists, ErrOneTree, or that of a side. Lost connections and expired sessions are no errors. What a server
// does not show or take is one of the differences. When ctx ends, Run ends with its error.
func Run(ctx context.Context, cfg Config) (Result, error) {
	if cfg.Every <= 0 {
		cfg.Every = everyDefault
	}
	c := &copier{cfg: cfg, seed: maphash.MakeSeed(), known: newKnown(), news: newNews()}
	c.problems = make(map[string]error)
	c.from = &side{Side: cfg.From, name: "source", log: c.say, permit: readOnly}
	c.from.events, c.from.opened = c.heard, c.arm
	c.to = &side{Side: cfg.To, name: "target", log: c.say}
	defer c.to.close()
	defer c.from.close()
	err := c.start(ctx)
	if err == nil {
		err = c.run(ctx)
	}
	r := Result{Counts: c.counted()}
	if err == nil {
		err = c.compare(ctx, &r)
	}
	return r, err
}

// start opens both sides, and looks whether the copy may begin.
func (c *copier) start(ctx context.Context) error {
	for _, s := range []*side{c.from, c.to} {
		if err := s.open(ctx); err != nil {
			return err
		}
	}
	_, stat, err := c.from.list(ctx, "")
	switch {
	case err != nil:
		return fmt.Errorf("source: %s: %w", c.from.Path, err)
	case stat.EphemeralOwner != 0:
		return fmt.Errorf("source: %s: it is an ephemeral", c.from.Path)
	}
	names, _, err := c.to.list(ctx, "")
	absent := errors.Is(err, errAbsent) && !c.cfg.RootStays
	switch {
	case absent:
	case err != nil:
		return fmt.Errorf("target: %s: %w", c.to.Path, err)
	case !c.cfg.Overwrite && (!c.cfg.RootStays || len(names) > 0):
		return fmt.Errorf("%s: %w", c.to.Path, ErrExists)
	}
	return c.apart(ctx, absent)
}

// arm sets the recursive watch in a new session with the source.
func (c *copier) arm(ctx context.Context, zk *client.Client) error {
	var err error
	o := wire.Operation{Op: wire.OpAddWatch, Path: c.from.Path, Mode: wire.WatchRecursive}
	for range lostMax {
		_, err = zk.Call(ctx, wire.Request{Operation: o})
		if client.CodeOf(err) != wire.ConnectionLoss {
			break
		}
	}
	switch client.CodeOf(err) {
	case wire.Unimplemented, wire.MarshallingError, wire.ConnectionLoss:
		// With the last, the server only closes the connection.
		if zk.Ready(ctx) != nil {
			return err
		}
		c.watching.Store(false)
		c.say("source: it has no recursive watches, so the subtree is walked again every %v", c.cfg.Every)
		return nil
	}
	c.watching.Store(err == nil)
	return err
}

// heard handles an event of the source.
func (c *copier) heard(e client.Event) {
	if e.Type == wire.EventNone {
		// Events may have been lost. After the end of a session, the walk opens another one.
		if e.State == wire.StateSyncConnected || e.State == wire.StateExpired {
			c.news.all()
		}
		return
	}
	name := e.Path
	if c.from.Path != "/" {
		name = strings.TrimPrefix(name, c.from.Path)
	}
	if name == "/" {
		name = ""
	}
	if !reserved(e.Path) {
		c.news.add(name)
	}
}

// run copies until the cut-over.
func (c *copier) run(ctx context.Context) error {
	tick := time.NewTicker(c.cfg.Every)
	defer tick.Stop()
	stop := make(chan struct{})
	var sayer sync.WaitGroup
	sayer.Go(func() { c.sayLoop(stop) })
	defer sayer.Wait()
	defer close(stop)

	c.pruning.Store(c.cfg.Prune)
	c.news.take() // the walk sees what it tells
	err := c.walk(ctx)
	c.pruning.Store(false)
	if err != nil {
		return err
	}
	c.say("%s", c.progress("walked"))
	for cut := c.cfg.CutOver; cut != nil; {
		select {
		case <-cut:
			cut = nil
		case <-ctx.Done():
			return ctx.Err()
		case <-c.news.ready:
			_, err = c.catchUp(ctx)
		case <-tick.C:
			if !c.watching.Load() {
				err = c.walk(ctx)
			}
		}
		if err != nil {
			return err
		}
	}
	return c.settle(ctx)
}

// settle catches up with the source at the cut-over.
func (c *copier) settle(ctx context.Context) error {
	c.say("cutting over")
	if err := c.from.sync(ctx); err != nil {
		return err
	}
	c.news.all() // for the ACLs, and for znodes that were refused before
	for range settleMax {
		if again, err := c.catchUp(ctx); err != nil || !again {
			return errors.Join(err, c.to.sync(ctx))
		}
	}
	c.say("the source goes on changing")
	return c.to.sync(ctx)
}

// sayLoop says from time to time how far the copy is.
func (c *copier) sayLoop(stop <-chan struct{}) {
	tick := time.NewTicker(c.cfg.Every)
	defer tick.Stop()
	for said := ""; ; {
		select {
		case <-stop:
			return
		case <-tick.C:
			if now := c.progress("copying"); now != said {
				c.say("%s", now)
				said = now
			}
		}
	}
}

func (c *copier) progress(doing string) string {
	return fmt.Sprintf("%s: %d looked at, %v", doing, c.counts.walked.Load(), c.counted())
}

func (c *copier) counted() Counts {
	n := &c.counts
	return Counts{n.created.Load(), n.changed.Load(), n.deleted.Load()}
}

// say writes a line to the log.
func (c *copier) say(format string, args ...any) {
	if c.cfg.Log == nil {
		return
	}
	c.saying.Lock()
	defer c.saying.Unlock()
	c.cfg.Log(fmt.Sprintf(format, args...))
}

// note keeps why a znode is not copied; nil says that it is.
func (c *copier) note(name string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		delete(c.problems, name)
	} else if len(c.problems) < problemsMax {
		c.problems[name] = err
	}
}

func (c *copier) noted(name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.problems[name]
}
