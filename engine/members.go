package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/vivarium-go/vivarium/engine/ask"
	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/engine/outbox"
	"github.com/vivarium-go/vivarium/engine/replica"
	"github.com/vivarium-go/vivarium/replication"
	"github.com/vivarium-go/vivarium/replication/transport"
	"github.com/vivarium-go/vivarium/session"
)

// Errors of members that come and go.
var (
	// ErrRemoved says that this member is out of the ensemble for good.
	ErrRemoved = errors.New("this member is out of the ensemble")
	// ErrSuperseded says that a forced recovery has gone on without this member.
	ErrSuperseded = errors.New("a forced recovery has ended this member's lineage")
)

// Members returns all members that this node knows of, by their ids. Before the table of members is
// founded, they are the founders.
func (e *Engine) Members() (list []Member) {
	table := e.table()
	leads := e.Leader(command.HomeShard).Member == e.self() && !e.silenced()
	if table.Ensemble.Next == 0 {
		for _, m := range e.founders() {
			list = append(list, e.describe(session.Member{ID: session.MemberID(m), Wish: session.Voter}, leads))
		}
		return list
	}
	for _, m := range table.List {
		list = append(list, e.describe(m, leads))
	}
	return list
}

// describe adds what this node knows of a member. leads says that it leads the home shard, and so
// knows who answers.
func (e *Engine) describe(m session.Member, leads bool) Member {
	d := Member{Member: m}
	d.Name = cmp.Or(m.Name, m.Address) // for people
	if d.Address == "" && e.book != nil {
		d.Address = e.book.newest(MemberID(m.ID))
	}
	if !leads {
		return d
	}
	if d.Answers = e.answers(MemberID(m.ID)); !d.Answers || MemberID(m.ID) == e.self() {
		return d
	}
	committed, has := e.host.Load().Committed(command.HomeShard), e.transport.Pulse(uint64(m.ID), int(command.HomeShard)).Index
	if committed > has {
		d.Behind = committed - has
	}
	return d
}

// memberInterval is how often memberLoop looks without a change of the table.
const memberInterval = time.Second

// memberLoop tells the ensemble where this member is, tells observers of changes, and looks for the
// others where nobody leads. It ends with the node.
func (e *Engine) memberLoop() {
	ticker := time.NewTicker(memberInterval)
	defer ticker.Stop()
	leaderless := time.Now()
	observerSaid := false
	present := e.present()
	for {
		select {
		case <-e.stop:
			return
		case <-e.done:
			return
		case <-e.membersChanged:
			present = e.noteMembers(present)
			if e.cfg.MembersChanged != nil {
				e.cfg.MembersChanged() // queues the call, so it does not block
			}
		case <-ticker.C:
		}
		if e.Leader(command.HomeShard).Member != 0 {
			leaderless = time.Now()
			e.announce()
			observerSaid = observerSaid || e.sayObserver()
		} else if time.Since(leaderless) > LongestElection(e.cfg.Tick) {
			e.seek()
		}
	}
}

// AnnounceClient says where this member's clients connect, so that tree.ConfigPath has it. It
// returns false if somebody else has said so already. The ensemble hears of it within a second or
// two.
func (e *Engine) AnnounceClient(address string) bool { return e.client.CompareAndSwap(nil, &address) }

// WithdrawClient takes back what AnnounceClient said.
func (e *Engine) WithdrawClient() { e.client.Store(nil) }

// announce enters in the table where this member is, unless it says so already.
func (e *Engine) announce() {
	home := e.home()
	table := e.table()
	rec, known := table.Find(session.MemberID(e.self()))
	says := command.Announce{Name: e.nameToSay(table, rec), Address: e.cfg.Advertise, Zone: e.cfg.Zone}
	if announced := e.client.Load(); announced != nil {
		says.Client = *announced
	}
	news := says != command.Announce{Name: rec.Name, Address: rec.Address, Client: rec.Client, Zone: rec.Zone}
	if !known || rec.Wish == session.Out || !news {
		return
	}
	call := outbox.NewCall(nil, &command.Request{Kind: command.RequestAnnounce, Announce: says})
	if _, err := home.Outbox.Submit(call); err != nil {
		return
	}
	ctx, cancel := e.lifetime(memberInterval)
	defer cancel()
	_ = home.Outbox.Wait(ctx, call, memberInterval) // the loop looks again
}

// FounderName is the name of a founder to which nobody has given one.
func FounderName(m MemberID) string { return session.FounderName(session.MemberID(m)) }

// nameToSay returns the name under which a member is in the table, or is to be. Only a founder enters
// it after it has joined, once, and none that another one has: whoever was admitted under the name of
// an older member passes for its replacement.
func (e *Engine) nameToSay(table *session.MembersView, rec session.Member) string {
	taken := slices.ContainsFunc(table.List, func(m session.Member) bool { return m.ID != rec.ID && m.Name == e.cfg.Name && m.Wish < session.Out })
	given := rec.Name != "" && rec.Name != session.FounderName(rec.ID)
	if given || rec.Since != 0 || taken {
		return rec.Name
	}
	return e.cfg.Name
}

// sayObserver logs that Config.Observer is not what the ensemble knows, and reports whether it did.
// The value counts at the join alone: a voter never becomes a learner again, and nothing in the log
// changes it for a learner.
func (e *Engine) sayObserver() bool {
	rec, known := e.table().Find(session.MemberID(e.self()))
	if !known || rec.Observer == e.cfg.Observer || !isDone(e.home().Outbox.Ready) {
		return false
	}
	e.log.Warn("Config.Observer has no effect: it counts when a member joins", "recorded", rec.Observer)
	return true
}

// lifetime returns a context that ends when this node reaches no one any more, or after a time.
func (e *Engine) lifetime(d time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	go func() {
		select {
		case <-e.stop:
			cancel()
		case <-e.disk.Failed():
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// seek asks the seeds where the members are. All of them may have moved at once. It also greets
// them: a learner that was removed says nothing by itself, and nobody would tell it.
func (e *Engine) seek() {
	ctx, cancel := e.lifetime(ask.Time)
	defer cancel()
	answers, _ := e.askAll(ctx)
	own := e.lineage()
	for _, a := range answers {
		if slices.Contains(a.Ancestors, own) {
			e.failAsSuperseded(fmt.Sprintf("member %d at %s goes on as lineage %v, which follows %v", a.Member, a.Address, a.Lineage, own))
			return
		}
		if a.Member == 0 || a.Lineage != own && a.Lineage != (session.Lineage{}) || a.Address == "" {
			continue
		}
		e.book.met(a.Member, a.Address)
		if a.Member != e.self() {
			_ = e.transport.Probe(ctx, uint64(a.Member)) // a refusal reaches refused
		}
	}
}

// removedFrom is called when this member has applied its own removal from a shard. Nothing behind
// the removal is applied before it returns.
//
// The member serves nobody from then on. Its vote goes on: until it is out of all shards, the others
// may need it there, whatever the reason. One that was silent may be back.
func (e *Engine) removedFrom(id ShardID) {
	how := fmt.Sprintf("it has applied its removal from shard %d", id)
	left, leaves := e.departure.outOfOne() // first: Leave looks at it once calls end
	switch serves := isDone(e.home().Outbox.Ready); {
	case leaves:
		e.endUse(outbox.ErrClosed, nil)
	case serves:
		e.endUse(ErrFailed, e.removed(how))
	}
	switch {
	case left+e.unseen() < len(e.shards):
	case leaves:
		e.departure.done.Do(func() { close(e.departed) })
	default:
		e.failAsRemoved(how)
	}
}

// unseen returns on how many shards this member has never applied anything. It does not vote there, and
// is shut out before it ever does, so it never applies its removal from them.
func (e *Engine) unseen() (n int) {
	for _, r := range e.shards {
		if r.Index() == 0 {
			n++
		}
	}
	return n
}

// failAsRemoved records in the identity file that this member is out, and fails the node. A failed
// disk may keep it from being recorded; then the next start is told again. When it returns, nobody
// reads any more.
func (e *Engine) failAsRemoved(how string) {
	e.recordOut(e.reasonOut(toldByOthers))
	e.fail(e.removed(how))
	e.finish(e.switched()) // failureLoop may notice later
}

// removed is why a node fails whose member is out.
func (e *Engine) removed(how string) error {
	return fmt.Errorf("%w: member %d (%s): %s", ErrRemoved, e.self(), e.reasonOut(toldByOthers), how)
}

const toldByOthers = "told by others"

// reasonOut returns why this member is to be out by its table, or else what it says if that is not
// known here.
func (e *Engine) reasonOut(unknown string) string {
	if rec, ok := e.table().Find(session.MemberID(e.self())); ok && rec.Wish == session.Out {
		return rec.Reason.String()
	}
	return unknown
}

// recordOut records in the identity file that this member is out for good.
func (e *Engine) recordOut(reason string) {
	_ = e.amend(func(id *replication.Identity) bool { id.Out = reason; return true })
}

// isOut reports whether this node ended because its member is out of the ensemble.
func (e *Engine) isOut() bool { return errors.Is(e.disk.Err(), ErrRemoved) }

// RemoveMember takes a member out of the ensemble, wherever it is, and waits until no shard has it
// any more. ErrUnsafe says that the members that answer now would be no quorum without it. If ctx
// ends after the removal was recorded, the removal goes on, and the error is ErrUnknownOutcome.
func (e *Engine) RemoveMember(ctx context.Context, m MemberID) error {
	ctx, cancel := e.bounded(ctx)
	defer cancel()
	if err := e.over(); err != nil {
		return err
	}
	var sent bool
	var asked time.Time
	what := ask.RemovalOf(m)
	for {
		table := e.table()
		rec, found := table.Find(session.MemberID(m))
		switch {
		case table.Ensemble.Next == 0:
			// It has no table yet, or this node has not loaded it.
		case found && rec.OutOf() == len(e.shards), sent && !found:
			return nil
		case !found:
			return fmt.Errorf("%w: %d", session.ErrNotMember, m)
		case rec.Wish == session.Out:
			sent = true
		case time.Since(asked) > replica.RetryAfter:
			asked = time.Now()
			if _, err := e.askLeader(ctx, ask.Question{Remove: m}, what, &sent); err != nil {
				return err
			}
		}
		select {
		case <-time.After(replica.PollInterval):
		case <-e.done:
			return e.gaveUp(ctx, sent, what)
		case <-ctx.Done():
			return e.gaveUp(ctx, sent, what)
		}
	}
}

// gaveUp is the error of a change of the ensemble that this node no longer waits for. What was sent may
// be recorded, whatever ended the wait.
func (e *Engine) gaveUp(ctx context.Context, sent bool, what string) error {
	over := e.over()
	switch {
	case !sent && over != nil:
		return over
	case !sent:
		return e.notReady(outbox.Lacking(ctx, ctx.Err()))
	case over != nil:
		return ask.Unsure(what, errors.New(over.Error())) // it matches none of those that say that nothing was applied
	}
	return ask.Unsure(what, e.notReady(ctx.Err()))
}

// askLeader has the leader of the home shard record a change. sent says whether the change may have
// been proposed, now or before.
func (e *Engine) askLeader(ctx context.Context, q ask.Question, what string, sent *bool) (recorded bool, err error) {
	recorded, err = e.atLeader(ctx, q)
	switch {
	case errors.Is(err, ask.ErrLater):
		return false, nil
	case err != nil:
		return false, ask.Refused(err, *sent, what)
	}
	*sent = true
	return recorded, nil
}

// atLeader has the leader of the home shard record the change that a question asks for. It returns false if that is worth another try: with ask.ErrLater nothing was
// proposed, without an error nobody knows.
func (e *Engine) atLeader(ctx context.Context, q ask.Question) (answered bool, err error) {
	leader := e.Leader(command.HomeShard).Member
	if leader == e.self() {
		return e.change(ctx, &q)
	}
	address := e.book.newest(leader)
	if leader == 0 || address == "" {
		return false, ask.ErrLater
	}
	q.Lineage = e.lineage()
	a, err := ask.Ask(ctx, e.transport, transport.Target{Member: uint64(leader), Address: address}, q)
	if err != nil || a.Lineage != q.Lineage {
		return false, nil // the leader may be another one by now, or elsewhere
	}
	if a.Later {
		return false, ask.ErrLater
	}
	err = a.Refusal()
	return a.Done || err != nil, err
}

// settled waits until this node has led the home shard for so long that it knows who answers. It
// returns false if ctx ends first, or the leadership.
func (e *Engine) settled(ctx context.Context) bool {
	for {
		since, leads := e.LeadsSince()
		switch {
		case !leads:
			return false
		case time.Since(since) > 2*LongestElection(e.cfg.Tick):
			return true
		}
		select {
		case <-time.After(replica.PollInterval):
		case <-ctx.Done():
			return false
		case <-e.done:
			return false
		}
	}
}

// change does what a member asks where the home shard is led. It returns ask.ErrLater if this node does
// not lead it, or not for long enough. It returns false without an error if it cannot say what
// becomes of what it has proposed. A node that is over cannot say anything.
func (e *Engine) change(ctx context.Context, q *ask.Question) (answered bool, err error) {
	if answered, err = e.changeOrRefuse(ctx, q); e.over() != nil {
		return false, nil
	}
	return answered, err
}

func (e *Engine) changeOrRefuse(ctx context.Context, q *ask.Question) (answered bool, err error) {
	switch {
	case !e.settled(ctx):
		return false, ask.ErrLater
	case q.Remove != 0:
		return e.recordDeparture(ctx, q.Remove, session.Removed)
	case q.Reconfig != nil:
		return e.recordReconfig(ctx, q.Reconfig)
	}
	return e.letLeave(ctx, q.Leave)
}

// recordDeparture records that a member is to be out, where the home shard is led, and returns once the
// table has it. Until then no other change is judged: each counts on those who stay.
//
// A member that is removed is over once it is out of one of several shards, and several at once could
// take the quorum of another shard. So that is answered only when nobody else is on the way out.
func (e *Engine) recordDeparture(ctx context.Context, m MemberID, reason session.Reason) (answered bool, err error) {
	select {
	case e.reconfiguring <- struct{}{}:
		defer func() { <-e.reconfiguring }()
	default:
		return false, ask.ErrLater
	}
	table := e.table()
	rec, found := table.Find(session.MemberID(m))
	switch {
	case !found:
		return true, fmt.Errorf("%w: %d", session.ErrNotMember, m)
	case rec.Wish == session.Out:
		return true, nil
	case reason == session.Removed && len(e.shards) > 1 && e.anyGoes(table):
		return false, ask.ErrLater
	}
	stored := e.proveAtHome(ctx)
	if stored == nil {
		return false, ask.ErrLater
	}
	if why := e.unsafeWithout(m, reason == session.Left, stored); why != "" {
		return true, fmt.Errorf("%w: %s", ErrUnsafe, why)
	}
	if reason == session.Removed {
		e.log.Info("a member is to be removed on request", "peer", m)
	}
	_, _ = e.host.Load().Propose(command.HomeShard, command.EncodeWant(0, rec.ID, session.Out, reason, time.Now().UnixMilli())) // if it is lost, the caller asks again
	ctx, cancel := context.WithTimeout(ctx, admitTime)
	defer cancel()
	for {
		if rec, _ := e.table().Find(session.MemberID(m)); rec.Wish == session.Out {
			return true, nil
		}
		select {
		case <-time.After(replica.PollInterval):
		case <-e.done:
			return false, nil
		case <-ctx.Done():
			return false, nil
		}
	}
}

// anyGoes reports whether somebody is to be out, and still votes on some shard.
func (e *Engine) anyGoes(table *session.MembersView) bool {
	return slices.ContainsFunc(table.List, func(m session.Member) bool {
		return m.Wish == session.Out && slices.ContainsFunc(e.shards, func(r *replica.Replica) bool { return m.Votes(uint32(r.Shard)) })
	})
}

// unsafeWithout says why the voters that have just stored would be no quorum without a member, on any
// shard. It is empty if they are one on each. A member that leaves stays until it is out of all
// shards. Any other is over once it is out of one: on the others they must be a quorum beside it.
func (e *Engine) unsafeWithout(m MemberID, leaves bool, stored map[MemberID]bool) string {
	for _, r := range e.shards {
		if why := e.unsafeOn(r.Shard, m, leaves || len(e.shards) == 1, stored); why != "" {
			return why
		}
	}
	return ""
}

// goes reports whether a member is to be out.
func (e *Engine) goes(m MemberID) bool {
	rec, _ := e.table().Find(session.MemberID(m))
	return rec.Wish == session.Out
}

// unsafeOn is unsafeWithout for one shard. helps says that m is there until it is out of the shard.
func (e *Engine) unsafeOn(id ShardID, m MemberID, helps bool, stored map[MemberID]bool) string {
	voters := e.voters(id)
	if !slices.Contains(voters, m) {
		return ""
	}
	rest := slices.DeleteFunc(voters, func(v MemberID) bool { return v == m || e.goes(v) })
	answering := slices.DeleteFunc(slices.Clone(rest), func(v MemberID) bool { return !stored[v] })
	switch {
	case len(rest) == 0 && helps && e.hasHeir(m, stored):
		return "" // it stays until that one votes
	case len(rest) == 0:
		return fmt.Sprintf("member %d is the only one that votes: let others join before", m)
	case len(answering) < len(rest)/2+1:
		return fmt.Sprintf("without member %d the voters would be %s, and of them only %s answer", m, replication.Listed(rest), replication.Listed(answering))
	case !helps && len(answering) < (len(rest)+1)/2+1:
		return fmt.Sprintf("member %d is over once it is out of one shard, and shard %d cannot take it out without its vote, because besides it only %s of %s answer: let it leave", m, id, replication.Listed(answering), replication.Listed(rest))
	}
	return ""
}
