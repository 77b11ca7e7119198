package recipetest

import (
	"context"
	"fmt"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/internal/clienttest"
)

// behind is how late the member that lags gets what the others have decided.
const behind = 300 * time.Millisecond

// A lag is an ensemble with one member that is behind. What is acknowledged to ahead, the late
// session does not show for a while.
type lag struct {
	t     *testing.T
	ens   *embedtest.Ensemble
	ahead *embed.Session // of the leader
	late  *embed.Session // of the member that lags, or of a client of it
	from  embed.Opener   // opens more of the latter
	path  string         // where nothing is yet
}

// within returns a ctx for a call that ends by itself, although its member lags.
func (l *lag) within() context.Context { return l.bound(time.Minute) }

// soon returns a ctx for a call that must wait until it ends.
func (l *lag) soon() context.Context { return l.bound(5 * time.Second) }

func (l *lag) bound(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(l.t.Context(), d)
	l.t.Cleanup(cancel)
	return ctx
}

// must ends the test if somebody other than the call fails.
func (l *lag) must(err error) {
	l.t.Helper()
	must(l.t, err)
}

// A promise is what a recipe says about what others have done. It must hold on a member that does
// not know that yet.
type promise struct {
	name string
	// before brings about what all members know; nil: nothing.
	before func(l *lag)
	// change is acknowledged to others, but is unknown to the member that lags. It returns what ends
	// it, or nil.
	change func(l *lag) func()
	// call calls the recipe there. It returns what is wrong.
	call func(l *lag) error
}

// Each promise of a recipe holds on a member that lags: for its sessions and those of its clients,
// and with one shard and with several.
func TestRecipes_OnAMemberThatLags(t *testing.T) {
	t.Parallel()
	for _, p := range promises() {
		for _, shards := range []int{1, 4} {
			for _, clients := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%d shards, clients %v", p.name, shards, clients), func(t *testing.T) {
					t.Parallel()
					synctest.Test(t, func(t *testing.T) { promised(p.name).keep(t, shards, clients) })
				})
			}
		}
	}
}

// promised returns a promise by its name. Each test has its own, because it may remember things.
func promised(name string) *promise {
	all := promises()
	return &all[slices.IndexFunc(all, func(p promise) bool { return p.name == name })]
}

// An openerFunc is an embed.Opener.
type openerFunc func(ctx context.Context, o embed.SessionOptions) (*embed.Session, error)

func (f openerFunc) NewSession(ctx context.Context, o embed.SessionOptions) (*embed.Session, error) {
	return f(ctx, o)
}

// keep plays a promise.
func (p *promise) keep(t *testing.T, shards int, clients bool) {
	l := newLag(t, shards, clients)
	if p.before != nil {
		p.before(l)
	}
	_, err := l.late.Sync(t.Context(), l.path)
	must(t, err)
	for _, id := range []embed.MemberID{1, 2, 4} {
		l.ens.Faults(id).SetLink(3, embedtest.Link{Delay: behind})
	}
	<-time.After(2 * behind) // what was on its way has arrived
	end := p.change(l)
	if err := p.call(l); err != nil {
		t.Error(err)
	}
	l.ens.HealAll()
	if end != nil {
		end()
	}
}

// newLag starts four members, the first of which leads.
func newLag(t *testing.T, shards int, clients bool) *lag {
	ens := embedtest.New(t, 4, embedtest.Options{Config: func(c *embed.Config) {
		c.Tick, c.Shards = 100*time.Millisecond, shards
	}})
	ens.TransferLeadership(1)
	l := &lag{t: t, ens: ens, from: ens.Node(3), path: "/a/b"}
	if clients {
		k, end, err := clienttest.Over(ens.Node(3), func(ctx context.Context) (net.Conn, error) { return ens.Dial(ctx, 3) })
		must(t, err)
		t.Cleanup(end)
		l.from = k
	}
	l.ahead = ens.Session(1, embed.SessionOptions{})
	l.late = l.open()
	return l
}

// open opens another session of the member that lags.
func (l *lag) open() *embed.Session {
	s, err := l.from.NewSession(l.t.Context(), embed.SessionOptions{})
	l.must(err)
	l.t.Cleanup(func() { _ = s.Close() })
	return s
}
