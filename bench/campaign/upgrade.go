package campaign

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/vivarium-go/vivarium/embed"
)

// An Upgrade is a change of builds while the ensemble is used.
type Upgrade struct {
	// From and Level are the highest feature levels that the older and the newer build read.
	From, Level int64
	// Next makes the newer build one to come: it reads a level, and speaks a version of the protocol,
	// that only tests know. Otherwise it is the present one.
	Next bool
	// Mixed leaves one member at the older build for the whole round, and replaces it at the end.
	// Otherwise all members of a round begin there, and change one after the other.
	Mixed bool
	// Grow has members come and go once the ensemble is rolled.
	Grow bool
}

// newcomers is how many members join an ensemble that was rolled. All are to vote.
const newcomers = 2

// An Upgrader is a Host with an older build of the members' program.
type Upgrader interface {
	// SpawnOld is Spawn with the older build.
	SpawnOld(id embed.MemberID, log string) (Process, error)
	// Fingerprint returns a hash of all that is in the directory of a member that does not run.
	Fingerprint(id embed.MemberID) (string, error)
}

// A build is what a member runs.
type build struct {
	old  bool
	hold int64 // Config.HoldLevel, if it is the newer build
}

func (b build) String() string {
	switch {
	case b.old:
		return "the older build"
	case b.hold > 0:
		return fmt.Sprintf("the newer build with HoldLevel %d", b.hold)
	}
	return "the newer build"
}

// raiseMax is how long the ensemble may take to raise its level once nothing holds it down. A
// leader looks every second. The rest is for elections and a busy machine.
const raiseMax = 10 * time.Second

// steady reports whether no session with a long timeout may end while its process lives: one member
// at a time is down, and for less than that timeout.
func (s *Settings) steady() bool {
	kinds := s.kinds()
	return s.Upgrade != nil && (len(kinds) == 0 || len(kinds) == 1 && kinds[0].name == "kill one")
}

// chooseBuilds chooses what the members of a new ensemble run.
func (c *campaign) chooseBuilds(e *ensemble) {
	for _, id := range e.ids[:e.founders] {
		e.setBuild(id, build{old: c.Upgrade != nil && (!c.Upgrade.Mixed || id == e.ids[e.founders-1])})
	}
	e.setFixed(c.growsLater())
}

// growsLater reports whether the members of an ensemble come and go once it is rolled.
func (s *Settings) growsLater() bool { return s.Upgrade != nil && s.Upgrade.Grow }

// setFixed says whether the members stay as they are until it is called again.
func (e *ensemble) setFixed(fixed bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.mu.fixed = fixed
}

func (e *ensemble) isFixed() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.mu.fixed
}

func (e *ensemble) setBuild(id embed.MemberID, b build) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.mu.builds[id] = b
}

func (e *ensemble) build(id embed.MemberID) build {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.mu.builds[id]
}

// setAway leaves a place out of all faults and of all healing, or takes it in again.
func (e *ensemble) setAway(id embed.MemberID, away bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.mu.away[id] = away
}

// here returns the members that are not away.
func (e *ensemble) here() []embed.MemberID {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(e.ids), func(id embed.MemberID) bool { return e.mu.away[id] })
}

func (e *ensemble) spawn(id embed.MemberID, b build) (Process, error) {
	if b.old {
		return e.host.(Upgrader).SpawnOld(id, logFile(e.dir, id))
	}
	return e.host.Spawn(id, logFile(e.dir, id))
}

// level returns the feature level of an ensemble as a member knows it. The error says that the
// member does not answer.
func (e *ensemble) level(ctx context.Context, id embed.MemberID) (int64, error) {
	f, err := e.figures(ctx, id)
	return f["zk_feature_level"], err
}

// roll rolls all members from the older build to the present one, one cycle after the other, in any
// order. On the way it goes back where that is possible, and tries to where it is not.
func (n *nemesis) roll(ctx context.Context, u *Upgrade) {
	ids := n.e.here()
	n.rolls.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	first := n.plan.next()
	n.cycle(ctx, &first)
	n.finish()
	base := u.From
	n.awaitLevel(ctx, base)
	held := build{hold: base}
	steps := []change{}
	for i, id := range ids {
		steps = append(steps, change{id, held})
		if i > 0 { // from among others of the newer build, perhaps all of them
			steps = append(steps, change{id, build{old: true}}, change{id, held})
		}
	}
	for _, step := range steps {
		n.change(ctx, step)
		n.expectLevel(ctx, base)
	}
	last := len(ids) - 1
	for _, id := range ids[:last] {
		n.change(ctx, change{id, build{}})
		n.expectLevel(ctx, base)
	}
	// One member is away during the rise, so the rise is in no log that it has.
	n.leave(ctx, ids[0])
	n.swap(ctx, change{ids[last], build{}})
	n.awaitLevel(ctx, u.Level)
	if base < u.Level {
		n.expectRefusal(ctx, ids[0], u.Level)
	}
	n.e.setAway(ids[0], false)
	n.finish()
	n.awaitLevel(ctx, u.Level)
	if base < u.Level {
		n.expectRefusal(ctx, ids[last], u.Level)
	}
	if ctx.Err() == nil {
		n.report.count(sectionChecks, "ensemble rolled to the newer build", 1)
	}
}

// replace gives the newer build to the members with the older one. Until then these kept the
// level down.
func (n *nemesis) replace(ctx context.Context, u *Upgrade) {
	n.finish()
	n.expectLevel(ctx, u.From)
	for _, id := range n.e.here() {
		if n.e.build(id).old {
			n.change(ctx, change{id, build{}})
		}
	}
	n.awaitLevel(ctx, u.Level)
}

// grow lets members come and go in an ensemble that was rolled to the newer build. Others join and vote, a founder is removed, and the older
// build is refused at a founder. Every second time something else happens meanwhile.
func (n *nemesis) grow(ctx context.Context, u *Upgrade) {
	if ctx.Err() != nil {
		return
	}
	n.e.setFixed(false)
	for place := n.e.vacant(); place != 0; place = n.e.vacant() {
		n.e.renew(place)
	}
	if n.rolls.IntN(2) == 0 {
		c := n.plan.next()
		n.cycle(ctx, &c)
	}
	n.finish()
	n.expectRest(ctx)
	removed := n.remove(ctx, n.e.ids[n.rolls.IntN(n.e.founders)])
	n.finish() // judges the old directory, and starts a new member in its place
	n.expectRest(ctx)
	others := slices.DeleteFunc(slices.Clone(n.e.ids[:n.e.founders]), func(id embed.MemberID) bool { return id == removed })
	n.expectRefusal(ctx, others[n.rolls.IntN(len(others))], u.Level)
	n.expectRest(ctx)
	if ctx.Err() == nil {
		n.report.count(sectionChecks, "rolled ensemble grown", 1)
	}
}

// remove removes the member in a place, and returns the place.
func (n *nemesis) remove(ctx context.Context, id embed.MemberID) embed.MemberID {
	bound, cancel := limit(ctx, patience)
	defer cancel()
	s := &strike{nemesis: n, ctx: bound, rng: n.rolls}
	n.e.run(id).orderly.Store(true)
	if ev := s.evict(id); !ev.sure && ctx.Err() == nil {
		n.report.violate("available", "member %d in place %d is not removed %v after it was asked", ev.member, id, patience)
	}
	n.note("member %d is removed", id)
	return id
}

// expectRest waits until all members are at rest.
func (n *nemesis) expectRest(ctx context.Context) {
	if ctx.Err() != nil {
		return
	}
	begun := n.w.h.now()
	bound, cancel := limit(ctx, patience)
	defer cancel()
	if why := n.e.rest(bound); why != "" && ctx.Err() == nil {
		n.e.stacks()
		n.report.violate("members", "%v after everything was healed: %s", patience, why)
		return
	}
	n.report.say("%d members at rest after %v", len(n.e.here()), (n.w.h.now() - begun).Round(tick))
}

// A change gives a member another build.
type change struct {
	id embed.MemberID
	to build
}

// change stops a member, and starts it with another build when the cycle ends. Every second time
// something else happens meanwhile.
func (n *nemesis) change(ctx context.Context, to change) {
	if n.rolls.IntN(2) == 0 {
		n.swap(ctx, to)
		return
	}
	c := n.plan.next()
	for i := range c.strikes {
		c.strikes[i].after += between(n.rolls, 0, c.length/4) // during the stop or after it
	}
	n.strike(ctx, &c, to)
}

// swap changes a member's build, and nothing else happens meanwhile.
func (n *nemesis) swap(ctx context.Context, to change) {
	n.strike(ctx, &cycle{round: n.plan.round, number: n.plan.number, length: moment}, to)
}

// strike adds a change to a cycle, and waits until all members are ready after it.
func (n *nemesis) strike(ctx context.Context, c *cycle, to change) {
	if ctx.Err() != nil {
		return
	}
	stop := planned{seed: n.rolls.Uint64(), fault: fault{name: "change to " + to.to.String(), strike: func(s *strike) string {
		s.e.setBuild(to.id, to.to)
		if s.rng.IntN(2) == 0 {
			return s.kill(to.id)
		}
		return s.shutDown(to.id)
	}}}
	c.strikes = slices.Insert(c.strikes, 0, stop)
	c.settle = true
	n.cycle(ctx, c)
	n.finish()
}

// leave stops a member, which is away until setAway.
func (n *nemesis) leave(ctx context.Context, id embed.MemberID) {
	if ctx.Err() != nil {
		return
	}
	n.e.setAway(id, true)
	s := &strike{nemesis: n, ctx: ctx, rng: n.rolls}
	n.note("member %d leaves: %s", id, s.shutDown(id))
}

// expectLevel reports a violation if a member is at another level. All members are ready.
func (n *nemesis) expectLevel(ctx context.Context, want int64) {
	for _, id := range n.e.here() {
		switch level, err := n.e.level(ctx, id); {
		case ctx.Err() != nil:
		case err != nil:
			n.report.violate("available", "member %d does not say its level: %v", id, err)
		case level != want:
			n.report.violate("level", "member %d is at level %d, and something holds it at %d", id, level, want)
		default:
			n.report.count(sectionChecks, "level unchanged", 1)
		}
	}
}

// awaitLevel waits until all members are at a level. All members are ready.
func (n *nemesis) awaitLevel(ctx context.Context, want int64) {
	begun := n.w.h.now()
	for _, id := range n.e.here() {
		for ctx.Err() == nil {
			level, err := n.e.level(ctx, id)
			if err == nil && level == want {
				break
			}
			if waited := n.w.h.now() - begun; waited > raiseMax {
				n.report.violate("level", "member %d is at level %d, not %d, %v after nothing holds it down: %v", id, level, want, waited, err)
				return
			}
			pause(ctx, tick)
		}
	}
	if ctx.Err() != nil {
		return
	}
	n.report.say("level %d after %v", want, (n.w.h.now() - begun).Round(tick))
	n.report.count(sectionChecks, "level raised", 1)
}

// expectRefusal starts the older build for a member of an ensemble with a level that this build
// does not read. It must fail or be refused, and say why. Then the newer build goes on.
func (n *nemesis) expectRefusal(ctx context.Context, id embed.MemberID, level int64) {
	if ctx.Err() != nil {
		return
	}
	s := &strike{nemesis: n, ctx: ctx, rng: n.rolls}
	s.shutDown(id)
	defer n.finish() // starts the newer build, unless the member is away
	before, err := n.e.host.(Upgrader).Fingerprint(id)
	if err != nil {
		n.report.violate("harness", "member %d: %v", id, err)
	}
	p, err := n.e.spawn(id, build{old: true})
	if err != nil {
		n.report.violate("harness", "member %d: %v", id, err)
		return
	}
	defer func() {
		p.Kill()
		<-p.Dead()
	}()
	p.Send(Request{Call: callExpired}, nil)
	says := fmt.Sprintf("level %d", level)
	why, atStart, ok := n.refusal(p, &start{Home: n.e.host.Home(id), ID: id, Shards: n.e.shards}, says)
	if !ok {
		n.report.violate("level", "member %d with the older build, after level %d: %q", id, level, why)
		return
	}
	n.report.say("member %d with the older build: %s", id, why)
	n.report.count(sectionChecks, "older build refused", 1)
	if !atStart {
		return
	}
	if after, err := n.e.host.(Upgrader).Fingerprint(id); err != nil || after != before {
		n.report.violate("level", "the older build was refused, and has changed the directory of member %d: %v", id, err)
		return
	}
	n.report.count(sectionChecks, "directory unchanged by the older build", 1)
}

// refusal starts a node and returns why it cannot be ready, whether it did not even start, and
// whether the reason says what it has to.
func (n *nemesis) refusal(p Process, q *start, says string) (why string, atStart, ok bool) {
	expected := func() bool { return strings.Contains(why, says) }
	if a := <-p.Send(Request{Call: callStart, Start: q}, nil); a.Error != "" {
		why = a.Error
		return why, true, expected()
	}
	for begun := n.w.h.now(); n.w.h.now()-begun < patience; pause(context.Background(), tick) {
		ready := <-p.Send(Request{Call: callReady, Within: moment}, nil)
		if ready.Error == "" {
			return "it is ready", false, false
		}
		why = ready.Error
		if a := <-p.Send(Request{Call: callStatus}, nil); a.Failed != "" {
			why = a.Failed
			return why, false, expected()
		}
		if expected() {
			return why, false, true
		}
	}
	return why, false, false
}
