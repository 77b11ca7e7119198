package engine

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/vivarium-go/vivarium/engine/replica"
	"github.com/vivarium-go/vivarium/internal/rank"
	"github.com/vivarium-go/vivarium/replication/transport"
	"github.com/vivarium-go/vivarium/session"
)

const (
	// recentMax is how many occurrences a node remembers.
	recentMax = 4096
	// recentLogged is how many of them go to the log when the node fails.
	recentLogged = 64
)

// An Occurrence is something that happened to a node. A field that its kind does not have is zero.
type Occurrence struct {
	At     time.Time
	Kind   Kind
	Shard  ShardID
	Member MemberID
	Number uint64
	Took   time.Duration
}

// A Kind is what happened.
type Kind uint8

// The kinds.
const (
	Ready          Kind = iota // the member is registered on all shards
	LeaderChanged              // Shard; Member leads, zero: nobody that this node knows; Number: the term
	QuorumLost                 // Shard
	QuorumBack                 // Shard; Took: how long there was none
	Suspended                  // Number: of sessions
	Resumed                    // Number: of sessions
	StateInstalled             // Shard; Took
	SlowFsync                  // Took
	SlowApply                  // Shard; Took
	SlowCommit                 // Shard; Took
	SlowPeer                   // Member; Took
	ClockJumped                // Took: how far; negative: back
	PeerConnected              // Member
	PeerLost                   // Member
	PeerRefused                // Member; by either side
	MemberJoined               // Member
	MemberGone                 // Member; it is to go, or has gone
	LevelRaised                // Shard; Number: the level
	TLSReloaded
	DiskWaits  // for room or descriptors
	DiskGoesOn // the wait is over
	Failed
	kinds // how many there are
)

// String returns the kind in words.
func (k Kind) String() string {
	return [...]string{"ready", "leader changed", "quorum lost", "quorum back", "sessions suspended", "sessions resumed",
		"state installed", "slow fsync", "slow apply", "slow commit", "slow peer", "clock jumped", "peer connected",
		"peer lost", "peer refused", "member joined", "member gone", "level raised", "certificates reloaded",
		"disk waits", "disk goes on", "failed"}[k]
}

// String returns the occurrence as a line of text.
func (o Occurrence) String() string {
	return Describe(o.At, o.Kind.String(), o.Shard, o.Member, o.Number, o.Took)
}

// Describe returns an occurrence as a line of text.
func Describe(at time.Time, kind string, shard ShardID, member MemberID, number uint64, took time.Duration) string {
	var b strings.Builder
	b.WriteString(at.UTC().Format("15:04:05.000 "))
	b.WriteString(kind)
	for _, f := range []struct {
		name  string
		value uint64
	}{{"shard", uint64(shard)}, {"member", uint64(member)}, {"number", number}} {
		if f.value != 0 {
			fmt.Fprintf(&b, " %s=%d", f.name, f.value)
		}
	}
	if took != 0 {
		fmt.Fprintf(&b, " took=%v", round(took))
	}
	return b.String()
}

// A recent is the ring of the newest occurrences. It grows until it has recentMax.
type recent struct {
	rank.Mutex[rank.Recent]
	list []Occurrence
	next int // where the next one goes, once the ring is full
}

// note records an occurrence. It does not block, and may be called with any lock held.
func (r *recent) note(o Occurrence) {
	o.At = time.Now()
	r.Lock()
	defer r.Unlock()
	if len(r.list) < recentMax {
		r.list = append(r.list, o)
		return
	}
	r.list[r.next] = o
	r.next = (r.next + 1) % recentMax
}

// newest returns the newest occurrences, the oldest of them first: n of them, or all if n is
// not positive.
func (r *recent) newest(n int) []Occurrence {
	r.Lock()
	defer r.Unlock()
	all := append(slices.Clone(r.list[r.next:]), r.list[:r.next]...)
	if n > 0 && n < len(all) {
		all = all[len(all)-n:]
	}
	return all
}

// Recent returns the newest occurrences, the oldest of them first: max of them, or all that are
// remembered if max is not positive.
func (e *Engine) Recent(max int) []Occurrence { return e.recent.newest(max) }

// logRecent logs the newest occurrences, in one line.
func (e *Engine) logRecent() {
	var texts []string
	for _, o := range e.recent.newest(recentLogged) {
		texts = append(texts, o.String())
	}
	e.log.Warn("what happened before the failure", "recent", strings.Join(texts, "; "))
}

// notePeer is called by the transport, with its lock held.
func (e *Engine) notePeer(peer uint64, what transport.PeerEvent) {
	kind := [...]Kind{transport.PeerConnected: PeerConnected, transport.PeerLost: PeerLost, transport.PeerRefused: PeerRefused}[what]
	e.recent.note(Occurrence{Kind: kind, Member: MemberID(peer)})
}

// noteSessions is called by the keeper, with its lock held.
func (e *Engine) noteSessions(suspended bool, n int) {
	kind := Resumed
	if suspended {
		kind = Suspended
	}
	e.recent.note(Occurrence{Kind: kind, Number: uint64(n)})
}

// watchInstalls notes and logs the states that a shard gets from other members.
func (e *Engine) watchInstalls(r *replica.Replica) {
	r.Meters.Installs.OnSlow(0, func(took time.Duration) {
		e.recent.note(Occurrence{Kind: StateInstalled, Shard: r.Shard, Took: took})
		e.log.Info("state of another member installed", "shard", r.Shard, "zxid", fmt.Sprintf("%#x", uint64(r.Visible())), "took", took)
	})
}

// present returns the members that are not to go. Before the table of members is founded, they are
// the founders.
func (e *Engine) present() (ids []session.MemberID) {
	table := e.table()
	if table.Ensemble.Next == 0 {
		ids = sessionIDs(e.founders())
		slices.Sort(ids)
	}
	for _, m := range table.List {
		if m.Wish < session.Out {
			ids = append(ids, m.ID)
		}
	}
	return ids
}

// noteMembers notes who has joined or is gone since the table had these members. It returns those
// that it has now. Both lists are sorted.
func (e *Engine) noteMembers(before []session.MemberID) []session.MemberID {
	now := e.present()
	for _, c := range []struct {
		kind     Kind
		all, old []session.MemberID
	}{{MemberJoined, now, before}, {MemberGone, before, now}} {
		for _, m := range c.all {
			if _, had := slices.BinarySearch(c.old, m); !had {
				e.recent.note(Occurrence{Kind: c.kind, Member: MemberID(m)})
			}
		}
	}
	return now
}
