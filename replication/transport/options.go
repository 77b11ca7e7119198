package transport

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"time"
)

// An Identity is what a member says about itself at the start of every connection.
type Identity struct {
	Digest    [32]byte // founding digest of the ensemble
	Member    uint64   // zero for a node that is no member yet
	Directory [16]byte // random id of the member's directory
	Start     uint64   // how often a node was started on that directory

	Run  uint64        // random id of the process
	Tick time.Duration // tick of its Raft clock; zero is not compared

	Levels Levels // that its build reads; zero in Options means level 1
	Level  uint32 // in use on it now, the highest of its shards; Options.Level says it for this member

	// Lineage tells ensembles with the same digest apart; zero is not compared. Options.Lineage
	// says it for this member.
	Lineage [16]byte

	// Address is where the member says that it is reached, as host:port. It is empty if it does not
	// say so. More than 300 bytes do not travel.
	Address string

	Shards []ShardState // by shard - 1
}

// name returns the member as a text names it.
func (id *Identity) name() string {
	if id.Member == 0 {
		return "the node, which is no member yet,"
	}
	return fmt.Sprint("member ", id.Member)
}

// Levels are the lowest and the highest feature level that a build reads.
type Levels struct{ Min, Max uint32 }

// String names the levels.
func (l Levels) String() string {
	if l.Min == l.Max {
		return fmt.Sprint("level ", l.Min)
	}
	return fmt.Sprintf("levels %d to %d", l.Min, l.Max)
}

// shard returns what a member says about a shard; zero if it says nothing.
func (id *Identity) shard(i int) ShardState {
	if i >= len(id.Shards) {
		return ShardState{}
	}
	return id.Shards[i]
}

// Options say who this member is, and how it talks to which others.
type Options struct {
	// Self is this member. If its Member is zero, the node is no member yet. Until Become, it can
	// only ask and answer questions. Directory, Start, Run, Tick and Levels are set from the
	// beginning.
	Self Identity
	// Founding says in words what the digest of Self stands for. The log needs it when a peer has
	// another digest. It goes to the members that this one dials, never to one that has dialled.
	Founding string
	Shards   uint64 // messages for higher shards are dropped; zero means 1

	// Members returns the other members that this one knows of, for Peers. Its answer may change.
	// It is called from several goroutines and must not block. Nil means all that were met.
	Members func() []uint64

	// Counted, if not nil, is called when counting begins for a member. It must not block, and must
	// not use the Transport.
	Counted func(member uint64, m *Meters)
	// Noted, if not nil, is called when the connection to a member is made or lost, and when one of
	// the two begins to refuse the other. The same holds for it.
	Noted func(member uint64, what PeerEvent)

	// Address returns the host:port of a member; empty if it is not known. It is called for each
	// dial, and its answer may change. Nil means that Network finds members without an address.
	Address func(member uint64) string

	// Knows returns why no member with this id may talk to this one, or nil. It is called for each
	// handshake, and now and then while a member sends messages, from several goroutines. It must
	// not block. It may let in an id that is not known yet, because the log may already have it
	// elsewhere. Nil means that everybody is known.
	Knows func(member uint64) *Refusal

	// Learner reports whether a member has no vote on a shard, from 1, as far as this one knows.
	// RateLimit messages of a learner are dropped: a learner that cannot keep up must not stop all
	// writers. It must not block. Nil means that nobody is a learner.
	Learner func(member uint64, shard int) bool

	// Met is called after each handshake of either direction, with the address at which the peer
	// says that it is reached. It is not called without an address. It must not block. Nil means
	// that nothing is called.
	Met func(member uint64, address string)

	// Answer answers a question of somebody who need not be a member. It may take until ctx ends.
	// It is called from several goroutines. An answer has at most 1 MiB. Nil refuses all questions.
	Answer func(ctx context.Context, question []byte) []byte

	// Network dials the other members. Nil means that this member is alone: every dial is refused.
	Network Network

	// Listener accepts the other members' connections. The caller binds it before anything is
	// written. Nil means that no port is open. The transport closes the listener.
	Listener net.Listener

	// Accept may refuse a peer whose digest and member id are right. Its reason travels to the
	// peer. The kind travels too if the error is a *Refusal; otherwise it is ErrNotAccepted. Both
	// sides of a connection call Accept, for every connection and from several goroutines. It must
	// not block for long and must not call Close. Nil accepts everyone.
	Accept func(peer Identity) error

	// Held returns what the log of a shard holds; shards count from 0. It is called before each
	// hello. Nil means that the hello says nothing about it.
	Held func(shard int) Held

	// Level returns the feature level in use on this member, the highest of its shards. It is
	// called for each handshake, from several goroutines, and must not block. Nil means level 1.
	Level func() uint32

	// Lineage returns the ensemble's lineage, or zero while this member does not know it. It is
	// called for each handshake, from several goroutines, and must not block. Nil means zero.
	Lineage func() [16]byte

	// Ancestor reports whether a forced recovery of this member's ensemble has ended a lineage. Its
	// members are told that they are superseded. It is called for handshakes, from several
	// goroutines, and must not block. Nil means that there was no recovery.
	Ancestor func(lineage [16]byte) bool

	// Refused is called when a peer refused this member; reason is a *Refusal. It may be called
	// many times for the same refusal. It may block until ctx ends, which Shut brings about; only
	// that peer's connection waits meanwhile. It must not call Close, but may call Shut. Nil means
	// that nothing is called.
	Refused func(ctx context.Context, peer uint64, reason error)

	// Target returns the member that dragonboat knows under a name.
	Target func(uuid string) (member uint64, ok bool)

	// Logger receives refusals, failures and recoveries at a limited rate; nil means slog.Default.
	Logger *slog.Logger

	// FrameMax bounds the bytes of one message batch on the wire. Zero means 65 MiB, which holds
	// the largest batch dragonboat makes. It must be the same on all members. More than 1 GiB means
	// 1 GiB.
	FrameMax int

	// Highest is the highest version of the protocol that is spoken. Zero means that of this build;
	// only tests set it.
	Highest uint16
}
