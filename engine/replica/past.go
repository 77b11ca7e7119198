package replica

import (
	"fmt"
	"log/slog"
	"maps"
	"time"

	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/engine/outbox"
	"github.com/vivarium-go/vivarium/replication"
	"github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/storage"
	"github.com/vivarium-go/vivarium/tree"
)

// A Past is the state of a shard in the directory of a stopped member. It is in memory, and changes
// nothing in the directory.
type Past struct {
	r    *Replica
	node *pastNode
}

// LoadPast reads an image into memory. It knows the schemes of gateways, but none of a service's own.
func LoadPast(o storage.Options, shard replication.ShardID) (*Past, error) {
	l := newImageLoader(command.LevelMax)
	applied, err := storage.Check(o, l.addRecord)
	switch {
	case err != nil:
		return nil, err
	case applied == 0:
		l.state.Level, l.tree = command.LevelMin, tree.New(nil)
	default:
		if err := l.finish(); err != nil {
			return nil, err
		}
	}
	schemes := tree.BuiltinSchemes()
	maps.Copy(schemes, tree.ClientSchemes())
	used, err := pickSchemes(schemes, l.state.Rules.Schemes)
	if err != nil {
		return nil, fmt.Errorf("shard %d: %w", shard, err)
	}
	l.tree.SetSchemes(used)
	l.tree.SetWeightMax(l.state.Rules.TreeMax)

	silent, node := slog.New(slog.DiscardHandler), &pastNode{}
	out := &outbox.Outbox{Shard: shard, Origin: session.Origin{Level: command.LevelMax}} // nobody sends
	p := &Past{node: node, r: New(Options{Shard: shard, Node: node, Outbox: out, Schemes: schemes, TimeoutMin: time.Second, ReapEvery: time.Minute, Log: silent})}
	NewPurger([]*Replica{p.r, p.r}, nil, silent) // as the home shard and as a further one: it may be either
	p.r.tree.Store(l.tree)
	p.r.use(l)
	p.r.index.Store(applied)
	p.r.restartClocks()
	return p, nil
}

// Apply applies a command of the log, unless the image has it already. Commands come in their
// order.
func (p *Past) Apply(index uint64, cmd []byte) error {
	if index <= p.r.Index() {
		return nil
	}
	c, err := p.r.decoder.Decode(cmd)
	if err != nil {
		return err
	}
	p.r.ApplyOne(index, &c)
	p.r.decoder.Reset()
	return p.node.failed
}

// Index returns the index of the newest applied command.
func (p *Past) Index() uint64 { return p.r.Index() }

// Zxid returns the newest transaction.
func (p *Past) Zxid() tree.Zxid { return p.r.mu.Zxid }

// State returns the shard's state, and how many znodes it has.
func (p *Past) State() (s command.State, znodes int) { return p.r.mu.State, p.r.tree.Load().Len() }

// Walk calls fn for every znode in byte order of the paths, until fn returns an error.
func (p *Past) Walk(fn func(path string, z tree.Znode) error) error { return p.r.tree.Load().Walk(fn) }

// Members returns the table of members; empty if this is not the home shard.
func (p *Past) Members() *session.MembersView { return p.r.Members() }

// A pastNode is the node of a Past. It has no sessions.
type pastNode struct{ failed error }

func (n *pastNode) Fail(cause error)                                                            { n.failed = cause }
func (n *pastNode) Dismissed(why error)                                                         { n.failed = why }
func (n *pastNode) Gone([]tree.Change)                                                          {}
func (n *pastNode) Ended(replication.ShardID, error, ...tree.SessionID)                         {}
func (n *pastNode) Expired(tree.SessionID)                                                      {}
func (n *pastNode) Left(tree.SessionID)                                                         {}
func (n *pastNode) Adopt(*session.Table)                                                        {}
func (n *pastNode) Raised(replication.ShardID, uint32, []session.MemberID)                      {}
func (n *pastNode) Reconcile(replication.ShardID, *tree.Tree, *tree.Tree, *session.Table, bool) {}
func (n *pastNode) Seeded()                                                                     {}
func (n *pastNode) MembersChanged()                                                             {}
