package health

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/vivarium-go/vivarium/internal/rank"
	"github.com/vivarium-go/vivarium/replication"
)

// recentMax is how many occurrences a node remembers.
const recentMax = 4096

// An Occurrence is something that happened to a node. A field that its kind does not have is zero.
type Occurrence struct {
	At     time.Time
	Kind   Kind
	Shard  replication.ShardID
	Member replication.MemberID
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
func Describe(at time.Time, kind string, shard replication.ShardID, member replication.MemberID, number uint64, took time.Duration) string {
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

// round leaves three digits or more.
func round(d time.Duration) time.Duration {
	for _, unit := range []time.Duration{time.Millisecond, 10 * time.Microsecond, 10 * time.Nanosecond} {
		if d.Abs() > 100*unit {
			return d.Round(unit)
		}
	}
	return d
}

// A Recent is the ring of the newest occurrences. It grows until it has recentMax.
type Recent struct {
	rank.Mutex[rank.Recent]
	list []Occurrence
	next int // where the next one goes, once the ring is full
}

// Note records an occurrence. It does not block, and may be called with any lock held.
func (r *Recent) Note(o Occurrence) {
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

// Newest returns the newest occurrences, the oldest of them first: n of them, or all if n is
// not positive.
func (r *Recent) Newest(n int) []Occurrence {
	r.Lock()
	defer r.Unlock()
	all := append(slices.Clone(r.list[r.next:]), r.list[:r.next]...)
	if n > 0 && n < len(all) {
		all = all[len(all)-n:]
	}
	return all
}
