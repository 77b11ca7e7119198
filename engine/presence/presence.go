package presence

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/vivarium-go/vivarium/engine/ask"
	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/engine/entry"
	"github.com/vivarium-go/vivarium/engine/health"
	"github.com/vivarium-go/vivarium/engine/outbox"
	"github.com/vivarium-go/vivarium/engine/roster"
	"github.com/vivarium-go/vivarium/replication"
	"github.com/vivarium-go/vivarium/replication/transport"
	"github.com/vivarium-go/vivarium/session"
)

// interval is how often Loop looks without a change of the table.
const interval = time.Second

// A Node is what a Presence needs from above it.
type Node interface {
	// Leader says who leads a shard; nobody once the node is over.
	Leader(replication.ShardID) replication.Leader
	// Superseded fails the node, because a forced recovery has gone on without its member.
	Superseded(how string)
}

// Options are what a Presence is made of. Names and addresses are as in Config of package embed.
type Options struct {
	Node                Node
	Roster              *roster.Roster
	Recent              *health.Recent
	Name, Zone, Address string
	Observer            bool
	Election            time.Duration // the longest
	Changed             func()        // the members have changed; nil: nobody wants to know
	Reach               context.Context
	Done                <-chan struct{} // closed when the node is over for its users

	// Set before Loop.
	Entry     *entry.Entry
	Transport *transport.Transport
	Outbox    *outbox.Outbox // of the home shard
}

// A Presence is what one member says of itself, and hears of the others.
type Presence struct {
	Options
	changed chan struct{} // capacity 1; the table of members has changed
	// client is where this node's clients connect, for the other clients; nil if no gateway says so.
	client atomic.Pointer[string]
}

// New returns the presence of a node.
func New(o Options) *Presence { return &Presence{Options: o, changed: make(chan struct{}, 1)} }

// Wake is called when the table of members has changed. It does not block.
func (p *Presence) Wake() {
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// Loop tells the ensemble where this member is, tells observers of changes, and looks for the
// others where nobody leads. It ends with the node.
func (p *Presence) Loop() {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	leaderless := time.Now()
	observerSaid := false
	present := p.Roster.Present()
	for {
		select {
		case <-p.Reach.Done():
			return
		case <-p.Done:
			return
		case <-p.changed:
			present = p.note(present)
			if p.Changed != nil {
				p.Changed() // queues the call, so it does not block
			}
		case <-ticker.C:
		}
		if p.Node.Leader(command.HomeShard).Member != 0 {
			leaderless = time.Now()
			p.announce()
			observerSaid = observerSaid || p.sayObserver()
		} else if time.Since(leaderless) > p.Election {
			p.seek()
		}
	}
}

// note notes who has joined or is gone since the table had these members. It returns those
// that it has now. Both lists are sorted.
func (p *Presence) note(before []session.MemberID) []session.MemberID {
	now := p.Roster.Present()
	for _, c := range []struct {
		kind     health.Kind
		all, old []session.MemberID
	}{{health.MemberJoined, now, before}, {health.MemberGone, before, now}} {
		for _, m := range c.all {
			if _, had := slices.BinarySearch(c.old, m); !had {
				p.Recent.Note(health.Occurrence{Kind: c.kind, Member: replication.MemberID(m)})
			}
		}
	}
	return now
}

// AnnounceClient says where this member's clients connect, so that tree.ConfigPath has it. It
// returns false if somebody else has said so already. The ensemble hears of it within a second or
// two.
func (p *Presence) AnnounceClient(address string) bool { return p.client.CompareAndSwap(nil, &address) }

// WithdrawClient takes back what AnnounceClient said.
func (p *Presence) WithdrawClient() { p.client.Store(nil) }

// announce enters in the table where this member is, unless it says so already.
func (p *Presence) announce() {
	table := p.Roster.Table()
	rec, known := table.Find(session.MemberID(p.Roster.Self()))
	says := command.Announce{Name: p.nameToSay(table, rec), Address: p.Address, Zone: p.Zone}
	if announced := p.client.Load(); announced != nil {
		says.Client = *announced
	}
	news := says != command.Announce{Name: rec.Name, Address: rec.Address, Client: rec.Client, Zone: rec.Zone}
	if !known || rec.Wish == session.Out || !news {
		return
	}
	call := outbox.NewCall(nil, &command.Request{Kind: command.RequestAnnounce, Announce: says})
	if _, err := p.Outbox.Submit(call); err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(p.Reach, interval)
	defer cancel()
	_ = p.Outbox.Wait(ctx, call, interval) // the loop looks again
}

// nameToSay returns the name under which a member is in the table, or is to be. Only a founder enters
// it after it has joined, once, and none that another one has: whoever was admitted under the name of
// an older member passes for its replacement.
func (p *Presence) nameToSay(table *session.MembersView, rec session.Member) string {
	taken := slices.ContainsFunc(table.List, func(m session.Member) bool { return m.ID != rec.ID && m.Name == p.Name && m.Wish < session.Out })
	given := rec.Name != "" && rec.Name != session.FounderName(rec.ID)
	if given || rec.Since != 0 || taken {
		return rec.Name
	}
	return p.Name
}

// sayObserver logs that Config.Observer is not what the ensemble knows, and reports whether it did.
// The value counts at the join alone: a voter never becomes a learner again, and nothing in the log
// changes it for a learner.
func (p *Presence) sayObserver() bool {
	rec, known := p.Roster.Table().Find(session.MemberID(p.Roster.Self()))
	if !known || rec.Observer == p.Observer || !p.registered() {
		return false
	}
	p.Roster.Log.Warn("Config.Observer has no effect: it counts when a member joins", "recorded", rec.Observer)
	return true
}

// seek asks the seeds where the members are. All of them may have moved at once. It also greets
// them: a learner that was removed says nothing by itself, and nobody would tell it.
func (p *Presence) seek() {
	ctx, cancel := context.WithTimeout(p.Reach, ask.Time)
	defer cancel()
	answers, _ := p.Entry.AskAll(ctx)
	own := p.Roster.Lineage()
	for _, a := range answers {
		if slices.Contains(a.Ancestors, own) {
			p.Node.Superseded(fmt.Sprintf("member %d at %s goes on as lineage %v, which follows %v", a.Member, a.Address, a.Lineage, own))
			return
		}
		if a.Member == 0 || a.Lineage != own && a.Lineage != (session.Lineage{}) || a.Address == "" {
			continue
		}
		p.Roster.Met(a.Member, a.Address)
		if a.Member != p.Roster.Self() {
			_ = p.Transport.Probe(ctx, uint64(a.Member)) // a refusal reaches refused
		}
	}
}

// registered reports whether the ensemble has registered this member.
func (p *Presence) registered() bool {
	select {
	case <-p.Outbox.Ready:
		return true
	default:
		return false
	}
}
