package transport

import (
	"errors"
	"log/slog"
	"net"

	"github.com/lni/dragonboat/v4/config"
)

// An Identity is what a member says of itself at the start of every connection.
type Identity struct {
	Digest    [32]byte // founding digest of the ensemble
	Member    uint64   // never zero
	Directory [16]byte // random id of the member's directory
	Start     uint64   // counts the starts of that directory
}

// Options say who this member is, whom it talks to and how.
type Options struct {
	Self    Identity
	Members []uint64 // ids of all members, this one may be among them
	Shards  uint64   // messages for shards beyond are dropped; zero means 1

	// Network dials the other members; nil means alone: every dial is refused.
	Network Network

	// Listener accepts the other members' connections, bound by the caller before anything is written;
	// nil means that no port is open. The transport closes it.
	Listener net.Listener

	// Admit may refuse a peer whose digest and member id are right. Its reason travels to the peer. It is
	// called for every connection, by the side that dialled and the side that accepted, from several
	// goroutines, and must not block for long. Nil admits everyone.
	Admit func(peer Identity) error

	// Refused is told that a peer refused this member; reason is a *Refusal. It must not block. It may be
	// called many times for one cause. Nil ignores it.
	Refused func(peer uint64, reason error)

	// Target finds the member behind the name under which dragonboat knows it.
	Target func(uuid string) (member uint64, ok bool)

	// Logger gets refusals, failures and recoveries, at a limited rate; nil means slog.Default.
	Logger *slog.Logger

	// FrameMax bounds the bytes of one message batch on the wire; zero means 65 MiB, which holds the
	// largest batch dragonboat makes.
	FrameMax int
}

// Errors of the connections that dragonboat asks for.
var (
	ErrAlone         = errors.New("this member is alone")
	ErrShut          = errors.New("transport is shut")
	ErrUnknownTarget = errors.New("target is not a member")
)

// A Transport carries the messages of one node. See the package comment.
type Transport struct{ o Options }

// New returns a transport that neither dials nor accepts until dragonboat starts it.
func New(o Options) *Transport { return &Transport{o: o} }

// Factory returns what dragonboat's configuration wants. It can serve one NodeHost.
func (t *Transport) Factory() config.TransportFactory { return nil }

// Shut stops sending and accepting at once and for good. It does not wait and does not block: it is
// called when the disk has failed, before anybody is told. Close is still needed.
func (t *Transport) Shut() {}

// Close is Shut, and returns when all goroutines of the transport have ended. It may be called more than
// once and always returns nil.
func (t *Transport) Close() error { return nil }
