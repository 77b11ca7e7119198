package engine

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/engine/enginetest"
	"github.com/vivarium-go/vivarium/engine/outbox"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/tree"
)

// A purge model is two members with several shards. Member 1 has sessions that write everywhere and
// end in every way, and it restarts now and then. Either member may lead. Proposals may be lost,
// come late and come again. Each shard of each member applies at its own pace, but member 2 is
// always up to date at home. So what member 2 says about a session's end is the truth.
type purgeModel struct {
	t       *testing.T
	rng     *rand.Rand
	start   uint64
	owner   *node
	other   *node
	logs    [purgeShards][]*enginetest.Proposal // committed; by ShardID - 1
	applied map[*node]*[purgeShards]int         // how much of it
	transit []*enginetest.Proposal
	leader  MemberID
	users   []*purgeUser
	calls   []*purgeCall
	lost    map[tree.SessionID]bool // at home, where it is decided
	started map[tree.SessionID]bool // a shard knew another start of its member before the session's end
	seen    map[string]int
}

const purgeShards = 4

// A purgeUser is a session of the owner's present or an earlier start.
type purgeUser struct {
	s       *Session // nil until it is open
	start   uint64
	closing bool
}

// A purgeCall creates an ephemeral at a path of its own.
type purgeCall struct {
	user    *purgeUser
	shard   ShardID
	path    string
	lingers bool // when it is lost
	told    error
	done    bool
	real    bool // it was applied
}

func newPurgeModel(t *testing.T, seed uint64, seen map[string]int) *purgeModel {
	m := &purgeModel{t: t, rng: rand.New(rand.NewPCG(seed, 23)), applied: make(map[*node]*[purgeShards]int), leader: enginetest.Other, lost: make(map[tree.SessionID]bool), started: make(map[tree.SessionID]bool), seen: seen}
	m.other = m.join(session.Origin{Member: enginetest.Other, Start: 1, Directory: [16]byte{2}, Digest: enginetest.Origin().Digest, Level: command.LevelMin})
	m.restart()
	return m
}

func (m *purgeModel) join(o session.Origin) *node {
	n := newShardedNode(m.t, o, purgeShards)
	for _, shard := range n.shards {
		shard.Portion = 3
	}
	m.applied[n] = new([purgeShards]int)
	n.lead(m.leader)
	return n
}

// restart begins another start of the owner, which applies its logs again from the beginning.
func (m *purgeModel) restart() {
	if m.owner != nil {
		m.owner.finish(outbox.ErrClosed, nil)
		delete(m.applied, m.owner)
	}
	m.start++
	o := enginetest.Origin()
	o.Start = m.start
	m.owner = m.join(o)
}

func (m *purgeModel) step() {
	switch n := m.rng.IntN(1000); {
	case n < 40:
		m.open()
	case n < 190:
		m.create()
	case n < 200:
		m.close()
	case n < 208:
		m.silence(1 + m.rng.IntN(7))
	case n < 210:
		m.restart()
	case n < 400:
		m.commitOne()
	case n < 450:
		m.lose()
	case n < 490:
		m.duplicate()
	case n < 890:
		m.applyOne()
	case n < 900:
		m.elect(MemberID(m.rng.IntN(3)))
	case n < 950:
		m.look()
	default:
		enginetest.Pass(time.Duration(m.rng.IntN(100)) * time.Millisecond)
	}
	m.collect()
	m.checkLive()
}

// collect collects the proposals, which are then in transit.
func (m *purgeModel) collect() {
	synctest.Wait()
	for _, n := range []*node{m.owner, m.other} {
		m.transit = append(m.transit, n.log.Drain()...)
	}
}

func (m *purgeModel) open() {
	n, u := m.owner, &purgeUser{start: m.start}
	timeout := []time.Duration{20 * time.Second, time.Minute}[m.rng.IntN(2)]
	m.users = append(m.users, u)
	go func() { u.s, _ = n.OpenSession(m.t.Context(), timeout) }()
	synctest.Wait()
}

// opened returns the sessions that are or were open.
func (m *purgeModel) opened() (list []*purgeUser) {
	for _, u := range m.users {
		if u.s != nil {
			list = append(list, u)
		}
	}
	return list
}

func (m *purgeModel) create() {
	users := m.opened()
	if len(users) == 0 {
		return
	}
	u := users[max(0, len(users)-1-m.rng.IntN(5))]
	c := &purgeCall{user: u, shard: ShardID(1 + m.rng.IntN(purgeShards)), lingers: m.rng.IntN(2) == 0}
	c.path = m.other.on(c.shard, len(m.calls))
	m.calls = append(m.calls, c)
	op := ephemeral(c.path)
	if c.lingers {
		op = lingering(c.path)
	}
	go func() {
		_, c.told = u.s.Submit(m.t.Context(), []tree.Op{op}).Result()
		c.done = true
	}()
	synctest.Wait()
}

func (m *purgeModel) close() {
	users := m.opened()
	if len(users) == 0 {
		return
	}
	u := users[m.rng.IntN(len(users))]
	u.closing = true
	go u.s.Close()
	synctest.Wait()
}

// silence commits steps of the owner's silence and sometimes their consequences, ahead of what is
// in transit.
func (m *purgeModel) silence(steps int) {
	for range steps {
		table := tableOf(m.other.shard)
		step, d, ok := table.NextStep(enginetest.Member)
		if !ok {
			return
		}
		before := table.Len()
		m.commit(&enginetest.Proposal{Shard: command.HomeShard, Cmd: command.EncodeSilence(step, d, 1)})
		m.seen["expired"] += before - table.Len()
	}
	before := len(m.transit)
	m.look()
	m.collect()
	for len(m.transit) > before && m.rng.IntN(4) > 0 {
		m.commitAt(before)
	}
}

func (m *purgeModel) commit(p *enginetest.Proposal) {
	m.logs[p.Shard-1] = append(m.logs[p.Shard-1], p)
	if p.Shard == command.HomeShard {
		m.applyNext(m.other, command.HomeShard)
	}
}

func (m *purgeModel) commitOne() {
	if len(m.transit) == 0 {
		return
	}
	m.commitAt(m.rng.IntN(1 + m.rng.IntN(len(m.transit))))
}

func (m *purgeModel) commitAt(i int) {
	p := m.transit[i]
	m.transit = slices.Delete(m.transit, i, i+1)
	m.commit(p)
}

// lose loses a proposal. Its proposer may learn of that.
func (m *purgeModel) lose() {
	if len(m.transit) == 0 {
		return
	}
	i := m.rng.IntN(len(m.transit))
	m.transit[i].Lost.Store(m.rng.IntN(2) == 0)
	m.transit = slices.Delete(m.transit, i, i+1)
}

func (m *purgeModel) duplicate() {
	if len(m.transit) > 0 {
		p := m.transit[m.rng.IntN(len(m.transit))]
		m.transit = append(m.transit, &enginetest.Proposal{Shard: p.Shard, Cmd: p.Cmd})
	}
}

func (m *purgeModel) elect(leader MemberID) {
	m.leader = leader
	m.owner.lead(leader)
	m.other.lead(leader)
}

// look calls the loops that these nodes do not run.
func (m *purgeModel) look() {
	for _, n := range []*node{m.owner, m.other} {
		n.lookAround()
		for _, shard := range n.shards {
			shard.ExpireDue(time.Now())
		}
	}
}

func (m *purgeModel) applyOne() {
	n, id := []*node{m.owner, m.other}[m.rng.IntN(2)], ShardID(1+m.rng.IntN(purgeShards))
	for range 1 + m.rng.IntN(4) {
		m.applyNext(n, id)
	}
}

// applyNext applies the next entry of a shard on a member. It reports whether there was one.
func (m *purgeModel) applyNext(n *node, id ShardID) bool {
	at := &m.applied[n][id-1]
	if *at == len(m.logs[id-1]) {
		return false
	}
	c := enginetest.Decode(m.t, m.logs[id-1][*at].Cmd)
	*at++
	if n == m.other {
		m.count(tableOf(n.shards[id-1]), c)
	}
	shard := n.shards[id-1]
	before := tableOf(shard).Sessions(enginetest.Member)
	n.applyOn(id, c)
	synctest.Wait()
	if n == m.other && id == command.HomeShard {
		m.noteLost(before, tableOf(shard), c)
	}
	if err := tableOf(shard).Verify(); err != nil {
		m.t.Fatalf("member %d, shard %d: %v", n.cfg.Member, id, err)
	}
	if n == m.other {
		for _, call := range m.calls {
			call.real = call.real || call.shard == id && n.exists(call.path)
		}
	}
	return true
}

// noteLost records which sessions an entry of the home shard has ended as lost. These are all that
// it ended, except those that their owner closed.
func (m *purgeModel) noteLost(before []session.Record, table *session.Table, c command.Command) {
	for _, r := range before {
		if now, there := table.Get(r.ID); r.Ended != 0 || there && now.Ended == 0 {
			continue
		}
		i := slices.IndexFunc(c.Requests, func(q command.Request) bool { return q.Kind == command.RequestClose && q.Session == r.ID })
		m.lost[r.ID] = i < 0 || c.Requests[i].Lost
	}
}

func (m *purgeModel) count(table *session.Table, c command.Command) {
	if c.Kind == command.KindRegister {
		for _, r := range table.Sessions(c.Origin.Member) {
			m.started[r.ID] = m.started[r.ID] || r.Ended == 0
		}
	}
	for _, e := range c.Purge {
		m.seen["purge"]++
		if _, there := table.Get(e.Session); there {
			m.seen["purge that finds the session"]++
		}
	}
	m.seen["purged"] += len(c.Sessions)
	for _, r := range c.Requests {
		switch r.Kind {
		case command.RequestAddShard:
			m.seen["addShard"]++
		case command.RequestIntroduce:
			m.seen["introduce"]++
		}
	}
}

// lives reports whether nothing has decided a session's end: neither its owner nor the log of the
// home shard.
func (m *purgeModel) lives(u *purgeUser) bool {
	return u.start == m.start && !u.closing && u.s.Live() == nil && tableOf(m.other.shard).Usable(u.s.ID(), enginetest.Member) == nil
}

// checkLive checks that a live session has, on its own member, what it was told that it has.
func (m *purgeModel) checkLive() {
	for _, c := range m.calls {
		if c.done && c.told == nil && m.lives(c.user) && !m.owner.exists(c.path) {
			m.t.Fatalf("%s of session %d is gone, which lives", c.path, c.user.s.ID())
		}
	}
}

// deliverAll lets everything arrive and finish.
func (m *purgeModel) deliverAll() {
	m.t.Helper()
	m.deliverUntil(m.idle)
}

func (m *purgeModel) deliverUntil(done func() bool) {
	m.t.Helper()
	m.elect(enginetest.Other)
	for range 400 {
		enginetest.Pass(outbox.PollInterval)
		m.look()
		m.collect()
		for len(m.transit) > 0 {
			m.commitOne()
		}
		for n := range m.applied {
			for id := ShardID(1); id <= purgeShards; id++ {
				for m.applyNext(n, id) {
				}
			}
		}
		if done() {
			return
		}
	}
	m.t.Fatalf("there is still something to be done: remembered at home are %v", m.other.endedAtHome())
}

func (m *purgeModel) idle() bool {
	for n := range m.applied {
		if len(n.endedAtHome()) > 0 {
			return false
		}
		for _, shard := range n.shards {
			if due := tableOf(shard).DueLen(); due > 0 {
				return false
			}
		}
	}
	return !slices.ContainsFunc(m.calls, func(c *purgeCall) bool { return !c.done })
}

// check compares the callers' outcomes with the state, when everything has arrived.
func (m *purgeModel) check() {
	for _, c := range m.calls {
		unknown := errors.Is(c.told, outbox.ErrUnknownOutcome)
		if !unknown && c.real != (c.told == nil) {
			m.t.Errorf("the create of %s returned %v; it was applied: %v", c.path, c.told, c.real)
		}
		want := m.want(c)
		for n := range m.applied {
			if n.exists(c.path) != want {
				m.t.Errorf("member %d has %s of session %d, lost: %v: %v, want %v", n.cfg.Member, c.path, c.user.s.ID(), m.lost[c.user.s.ID()], !want, want)
			}
		}
	}
	m.checkMemory()
}

// want reports whether the znode of a call should exist when everything has arrived.
func (m *purgeModel) want(c *purgeCall) bool {
	if m.lives(c.user) || !c.real || !c.lingers {
		return c.real && m.lives(c.user)
	}
	lost, knew := m.lost[c.user.s.ID()], "lost"
	switch {
	case c.shard == command.HomeShard:
	case lost && c.user.closing, !lost && m.started[c.user.s.ID()]:
		// The shard may have learned of the close that came too late at home, or of the member's
		// next start before the close. Either result is right if all members have the same.
		lost, knew = m.other.exists(c.path), "either"
	case !lost:
		knew = "closed"
	}
	m.seen[knew]++
	return lost
}

// checkMemory checks that nothing is recorded of sessions that have ended, once their member has
// told every shard that it knows.
func (m *purgeModel) checkMemory() {
	m.open()
	u := m.users[len(m.users)-1]
	m.deliverUntil(func() bool { return u.s != nil })
	for id := ShardID(1); id <= purgeShards; id++ {
		path := m.other.on(id, len(m.calls))
		m.calls = append(m.calls, &purgeCall{user: u, shard: id, path: path})
		done := m.owner.creating(u.s, path)
		m.deliverUntil(func() bool { return len(done) > 0 })
		if err := <-done; err != nil {
			m.t.Fatal(err)
		}
	}
	for n := range m.applied {
		for _, shard := range n.shards {
			kept := make(store)
			kept.drain(m.t, shard)
			for id, r := range kept {
				if tableOf(m.other.shard).Usable(id, enginetest.Member) != nil {
					m.t.Errorf("member %d, shard %d still has %+v", n.cfg.Member, shard.Shard, r)
				}
			}
		}
	}
}

// F2: sessions on several shards begin and end in every way. Their logs lose, repeat and reorder
// proposals, and leaders come and go. Nothing is left of sessions that have ended, and nothing is
// missing of those that live. Every caller gets the true outcome. Nothing is recorded for ever.
func TestSessionsEndOnEveryShardOnUnreliableLogs(t *testing.T) {
	seen := make(map[string]int)
	for _, seed := range enginetest.Seeds(t, 40) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newPurgeModel(t, seed, seen)
				for range 2500 {
					m.step()
				}
				m.deliverAll()
				m.check()
			})
		})
	}
	for _, what := range []string{"expired", "addShard", "introduce", "purge", "purge that finds the session", "purged", "lost", "closed"} {
		if seen[what] == 0 && *enginetest.SeedFlag == 0 && testkit.Night() { // a quarter of the schedules has a call that is told "closed" three times, if at all
			t.Errorf("%s: not once", what)
		}
	}
	t.Log(seen)
}
