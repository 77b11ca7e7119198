package inside

import (
	"github.com/vivarium-go/vivarium/engine"
	"github.com/vivarium-go/vivarium/engine/clock"
	"github.com/vivarium-go/vivarium/tree"
)

// A Node is an embed.Node.
type Node struct{ parts NodeParts }

// NodeParts is what a node is made of. Immutable.
type NodeParts struct {
	Engine *engine.Engine
	Config engine.Config // complete, with the defaults filled in

	// Authenticate returns the identities that credentials prove under the node's schemes, in the
	// order of the credentials and each once. The error says which credential proves nothing, and
	// why.
	Authenticate func(credentials ...Credential) ([]tree.Identity, error)

	// CloseOutlets ends the calls of the observers in embed.Config.Events, and of
	// embed.Config.Audit, and waits for embed.Config.Logger. It comes after the Close of Engine.
	CloseOutlets func()
	// LinesDropped returns how many lines of the log were left out.
	LinesDropped func() uint64
	// EventsDropped returns how many calls of observers were left out.
	EventsDropped func() uint64
	// Audited returns how many records embed.Config.Audit was given, and how many were left out. It
	// is nil if there is no Audit.
	Audited func() (given, dropped uint64)
}

// NewNode returns a node made of parts.
func NewNode(p NodeParts) *Node { return &Node{p} }

// Parts returns what the node is made of.
func (n *Node) Parts() *NodeParts { return &n.parts }

// A Credential is an embed.Auth.
type Credential struct {
	Scheme     string
	Credential []byte
}

// A Session is an embed.Session.
type Session struct{ parts SessionParts }

// SessionParts is what a session is made of. Immutable.
type SessionParts struct {
	Session Backend
	Root    Root
	MaxData int // embed.Config.MaxDataSize
}

// NewSession returns a session made of parts.
func NewSession(p SessionParts) *Session { return &Session{p} }

// Parts returns what the session is made of.
func (s *Session) Parts() *SessionParts { return &s.parts }

// ClientSeams are the parts of the machine that a client stands on: the type of client.Config.Inside.
type ClientSeams struct{ Clock clock.Clock }

// Seams is engine.Seams under a name that only this module can spell: the type of
// embed.Config.Inside.
type Seams engine.Seams
