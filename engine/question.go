package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/vivarium-go/vivarium/engine/ask"
	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/engine/replica"
	"github.com/vivarium-go/vivarium/engine/service"
	"github.com/vivarium-go/vivarium/replication"
	"github.com/vivarium-go/vivarium/replication/transport"
	"github.com/vivarium-go/vivarium/session"
)

const (
	// goneMax bounds the members that have come and gone. Raft never forgets their ids: they are in
	// every snapshot, and with some 140,000 a chunk of one is larger than a frame may be. Then nobody
	// could join or catch up.
	goneMax = 100_000
	// goneMany is from when on the leader warns.
	goneMany = 20_000
)

// noteGone records how many members have come and gone, and warns once if they are many.
func (e *Engine) noteGone(n int) {
	if before := e.gone.Swap(int64(n)); n >= goneMany && before < goneMany {
		e.log.Warn("very many members have come and gone: keep the directories of members, or found another ensemble (docs/limits.md)", "count", n)
	}
}

// admitTime bounds how long a member waits for an admission to be applied.
const admitTime = 10 * time.Second

// comesWithin is how long a name is kept for a member that was admitted under it and has not begun.
const comesWithin = 30 * time.Second

// answer answers a question, at a member or at a node that has yet to join.
func (e *Engine) answer(ctx context.Context, asked []byte) []byte {
	var q ask.Question
	a := ask.Answer{Directory: e.Directory(), Address: e.cfg.Advertise, Ensemble: e.cfg.Ensemble, Shards: e.cfg.Shards}
	if err := json.Unmarshal(asked, &q); err != nil {
		a.Refused = fmt.Sprintf("the question cannot be read: %v", err)
	} else if e.host.Load() == nil {
		if e.offers.Load() {
			a.Founder, a.Founders = e.cfg.Member, e.cfg.memberIDs()
			if met := e.met.Load(); met != nil {
				a.Directories = *met
			}
		}
		select {
		case e.callers <- caller{q.Directory, q.Met}:
		default: // enough others have asked
		}
	} else {
		e.answerAsMember(ctx, &q, &a)
	}
	text, err := json.Marshal(a)
	if err != nil {
		return nil // there is nothing in an answer that JSON cannot say
	}
	return text
}

func (e *Engine) answerAsMember(ctx context.Context, q *ask.Question, a *ask.Answer) {
	a.Member, a.Founders, a.Lineage, a.Leader = e.self(), e.founders(), e.lineage(), e.Leader(command.HomeShard).Member
	a.Ancestors = e.ancestors()
	if a.Lineage == (session.Lineage{}) {
		a.Directories = e.foundedWith()
	}
	a.Members = make(map[MemberID]string)
	for _, m := range e.memberIDs() {
		if address := e.book.newest(m); address != "" {
			a.Members[m] = address
		}
	}
	if q.List {
		a.Tell(q, e.Members())
	}
	if q.Backup != nil {
		part, err := e.give(ctx, q.Backup)
		if a.Backup = part; err != nil {
			a.Refuse(err)
		}
		return
	}
	if a.Leader != a.Member || e.recovers() {
		a.Later = true
		return // only the leader admits and removes: it knows who answers
	}
	var err error
	switch {
	case q.Lineage != (session.Lineage{}) && q.Lineage != a.Lineage:
		err = a.IsNot(q.Lineage)
	case q.Join:
		a.Admitted, err = e.admit(ctx, q)
	case q.Remove != 0, q.Leave != 0, q.Reconfig != nil:
		a.Done, err = e.change(ctx, q)
	}
	switch {
	case errors.Is(err, ask.ErrLater):
		a.Later = true
	case err != nil && e.over() == nil: // else who asks looks for another leader
		a.Refuse(err)
	}
}

// admit makes the asking node a member. It proposes the admission until the table shows it.
func (e *Engine) admit(ctx context.Context, q *ask.Question) (MemberID, error) {
	ctx, cancel := context.WithTimeout(ctx, admitTime)
	defer cancel()
	if !e.settled(ctx) {
		return 0, fmt.Errorf("member %d has led for too short a time to know who answers", e.self())
	}
	if err := e.mayAdmit(ctx, q); err != nil {
		return 0, err
	}
	c := candidate(q)
	var proposed time.Time
	for {
		table := e.table()
		if rec, found := table.Of(c.Directory); found && rec.Wish < session.Out {
			if e.hasBegun(rec) {
				return 0, fmt.Errorf("the directory is that of member %d, which has a log and stores entries: it was put back to a time before it was a member; %s", rec.ID, replication.WayOut)
			}
			return MemberID(rec.ID), nil
		}
		gone, err := e.instead(table, c)
		c.Instead = gone
		if err = cmp.Or(err, table.CheckAdmit(c)); err != nil {
			return 0, err
		}
		if now := time.Now(); now.Sub(proposed) >= replica.RetryAfter {
			proposed = now
			_, _ = e.host.Load().Propose(command.HomeShard, command.EncodeJoin(c, now.UnixMilli())) // if it is lost, it is proposed again
		}
		select {
		case <-time.After(replica.PollInterval):
		case <-e.done:
			return 0, e.over()
		case <-ctx.Done():
			return 0, fmt.Errorf("no quorum has admitted the new member in time: %w", ctx.Err())
		}
	}
}

// hasBegun reports whether a member has registered. Its directory has recorded by then who it is, so
// whoever comes with the directory and does not know that has an older copy, without the entries that
// the member has acknowledged.
func (e *Engine) hasBegun(m session.Member) bool {
	o, registered := e.home().Origin(m.ID)
	return registered && o.Directory == m.Directory
}

func candidate(q *ask.Question) session.Candidate {
	return session.Candidate{Directory: q.Directory, Name: q.Name, Zone: q.Zone, Address: q.Address, Observer: q.Observer,
		Former: session.Former{ID: session.MemberID(q.Former.Member), Directory: q.Former.Directory}}
}

// mayAdmit returns why the asking node cannot be a member, or nil.
func (e *Engine) mayAdmit(ctx context.Context, q *ask.Question) error {
	if gone := e.gone.Load(); gone >= goneMax {
		return fmt.Errorf("%d members have come and gone, and the ensemble keeps the id of each: it admits nobody any more, so that members can still catch up (docs/limits.md: Members)", gone)
	}
	if e.home().Lineage() == (session.Lineage{}) {
		return errors.New("the ensemble has no lineage yet, which it gets when a majority of the founders is there")
	}
	if err := e.unfit(q); err != nil {
		return err
	}
	if e.cfg.Admit != nil {
		c := Candidate{Name: q.Name, Zone: q.Zone, Address: q.Address, Observer: q.Observer}
		_, err := service.Call(ctx, "Config.Admit", func(ctx context.Context) (any, error) { return nil, e.cfg.Admit(ctx, c) })
		if err != nil {
			return fmt.Errorf("Config.Admit of member %d refuses it: %w", e.self(), err)
		}
	}
	return nil
}

// unfit returns what the asking node must change in its config or build to fit this ensemble.
func (e *Engine) unfit(q *ask.Question) error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if q.Ensemble != e.cfg.Ensemble {
		bad("Ensemble is %q, that of the members is %q: it is another ensemble, or the name is wrong", q.Ensemble, e.cfg.Ensemble)
	}
	if q.Shards != e.cfg.Shards {
		bad("Shards is %d, that of the members is %d: set it to %d", q.Shards, e.cfg.Shards, e.cfg.Shards)
	}
	if max(q.Tick, e.cfg.Tick)/transport.TickRatio > min(q.Tick, e.cfg.Tick) {
		bad("Tick is %v, that of the members is %v: set it to %v", q.Tick, e.cfg.Tick, e.cfg.Tick)
	}
	if level := e.highestLevel(); q.Levels.Max < level {
		bad("the ensemble is at level %d, the build reads %v: start a build that reads level %d, without a lower Config.HoldLevel", level, q.Levels, level)
	}
	if len(q.Name) > NameMax || len(q.Zone) > NameMax || len(q.Address) > AddressMax {
		bad("Name, Zone or Advertise is too long: Name and Zone may have %d bytes, Advertise %d", NameMax, AddressMax)
	}
	for _, name := range e.home().SchemesInForce() {
		if !slices.Contains(q.Schemes, name) {
			bad("Schemes lack %q, which the ensemble's ACLs use: set Config.Schemes as on the other members", name)
		}
	}
	return errors.Join(errs...)
}

// instead returns the members with a candidate's name, which it may replace. It refuses the name of a
// member that answers, or was admitted a moment ago: two processes with one name would pass for
// replacements of each other.
func (e *Engine) instead(table *session.MembersView, c session.Candidate) (gone []session.MemberID, err error) {
	for _, m := range table.Namesakes(c) {
		switch {
		case e.answers(MemberID(m.ID)):
			return nil, fmt.Errorf("member %d has the Name %q and answers: give each replica a Name of its own, or none", m.ID, c.Name)
		case e.isOnItsWay(m):
			return nil, fmt.Errorf("member %d was admitted under the Name %q a moment ago: give each replica a Name of its own, or none", m.ID, c.Name)
		}
		gone = append(gone, m.ID)
	}
	return gone, nil
}

// isOnItsWay reports whether a member has not begun yet, and was admitted so lately that it may.
func (e *Engine) isOnItsWay(m session.Member) bool {
	age := time.Since(time.UnixMilli(m.Since))
	return !e.hasBegun(m) && 0 <= age && age < comesWithin
}

// answers reports whether a member's replica of the home shard answered within two longest
// elections. Only the shard's leader knows.
func (e *Engine) answers(m MemberID) bool {
	return m == e.self() || time.Since(e.transport.Pulse(uint64(m), int(command.HomeShard)).Answered) < 2*LongestElection(e.cfg.Tick)
}

// Directory returns the id of this node's directory.
func (e *Engine) Directory() [16]byte { return e.directory }
