package entry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/vivarium-go/vivarium/engine/ask"
	"github.com/vivarium-go/vivarium/engine/roster"
	"github.com/vivarium-go/vivarium/internal/pace"
	"github.com/vivarium-go/vivarium/internal/service"
	"github.com/vivarium-go/vivarium/replication"
	"github.com/vivarium-go/vivarium/replication/transport"
	"github.com/vivarium-go/vivarium/session"
)

const (
	// pauseMin and pauseMax bound the pauses between two rounds of questions, which double.
	pauseMin = 100 * time.Millisecond
	pauseMax = 5 * time.Second
	// callersMax bounds the rounds of questions that others cause.
	callersMax = 64
)

// MemberID names a member of the ensemble.
type MemberID = replication.MemberID

// Options are all that an Entry needs. Most of them are as in Config of package embed.
type Options struct {
	Roster    *roster.Roster
	Transport *transport.Transport
	Network   transport.Network

	Member   MemberID // as which it may found; zero: it may not
	Members  map[MemberID]string
	Alone    bool
	Join     []string
	Ensemble string
	Shards   int
	Found    func(context.Context) (bool, error)

	// What it says of itself to who may let it in.
	Tick       time.Duration
	Levels     transport.Levels
	Schemes    []string
	Name, Zone string
	Advertise  string
	Observer   bool
}

// An Entry finds out who a node is that has yet to join.
type Entry struct {
	Options
	log     *slog.Logger
	lack    atomic.Pointer[string] // what Find waits for
	callers chan caller            // others that have asked this node
	// offers says that others may found the ensemble with this node: it has looked, and is in none. A
	// member that is starting is in one, and so is one whose directory has a former member.
	offers atomic.Bool
	// met are the directories of all founders with which this one founds, if the others say the same.
	// It is set once.
	met atomic.Pointer[map[MemberID][16]byte]
}

// New returns the entry of a node, which asks nobody yet.
func New(o Options) *Entry {
	return &Entry{Options: o, log: o.Roster.Log, callers: make(chan caller, callersMax)}
}

// Lack says what Find waits for.
func (e *Entry) Lack() string {
	if lack := e.lack.Load(); lack != nil {
		return *lack
	}
	return roster.ErrJoining.Error()
}

// Answer answers a question at a node that has yet to join.
func (e *Entry) Answer(q *ask.Question, a *ask.Answer) {
	me := e.me()
	a.Was = cmp.Or(me.Member, me.Former.Member)
	if e.offers.Load() {
		a.Founder, a.Founders = e.Member, e.founders()
		if met := e.met.Load(); met != nil {
			a.Directories = *met
		}
	}
	select {
	case e.callers <- caller{q.Directory, q.Met}:
	default: // enough others have asked
	}
}

// Find repeats rounds of questions until one says who this node is. It returns false if ctx ends
// first, or if the identity cannot be stored.
func (e *Entry) Find(ctx context.Context) (replication.Identity, bool) {
	var told string
	known := make(map[caller]bool)
	var p pace.Pace // some reasons differ each time, by a port
	for pause := pauseMin; ; pause = min(2*pause, pauseMax) {
		me, err := e.round(ctx)
		if err == nil {
			return me, e.Roster.Identity.Amend(func(id *replication.Identity) bool { *id = me; return true }) == nil
		}
		lack := err.Error()
		e.lack.Store(&lack)
		if lack != told {
			if held, due := p.Due(time.Now()); due {
				told = lack
				e.log.Info("joining", "cause", lack, "repeated", held)
			}
		}
		if e.pauseFor(ctx, pause, known); ctx.Err() != nil {
			return replication.Identity{}, false
		}
	}
}

// me is what the identity file says.
func (e *Entry) me() replication.Identity { return e.Roster.Identity.Now() }

func (e *Entry) founders() []MemberID { return slices.Sorted(maps.Keys(e.Members)) }

// seeds returns where members may be: first the founders, then the addresses in Join.
func (e *Entry) seeds() []string { return append(slices.Sorted(maps.Values(e.Members)), e.Join...) }

// A caller is somebody that has asked this node.
type caller struct {
	directory [16]byte
	met       bool // it is a founder that knows all others
}

// pauseFor waits between two rounds of questions. It ends early when somebody asks this node for the
// first time, who may be the founder that was missing, and when it has met all founders. So founders
// found as soon as the last is there.
func (e *Entry) pauseFor(ctx context.Context, d time.Duration, known map[caller]bool) {
	over := time.After(d)
	for {
		select {
		case <-ctx.Done():
			return
		case <-over:
			return
		case caller := <-e.callers:
			if !known[caller] && len(known) < callersMax {
				known[caller] = true
				return
			}
		}
	}
}

// round asks everybody once, and does what follows from the answers. The error says what this
// node waits for.
func (e *Entry) round(ctx context.Context) (replication.Identity, error) {
	me := e.me() // only this loop changes it meanwhile
	answers, silent := e.AskAll(ctx)
	found, err := e.mayFound(ctx, answers, silent)
	e.offers.Store((err != nil || found != nil) && e.Options.Found == nil)
	switch {
	case err != nil:
		return me, err
	case found != nil:
		me.Found(cmp.Or(e.Member, 1), slices.Sorted(maps.Keys(found)))
		me.Peers = maps.Clone(found) // each as it was there: another one with its id is a stranger
		delete(me.Peers, me.Member)
		return me, nil
	}
	return e.join(ctx, me, answers, silent)
}

// ownQuestion returns what this node asks.
func (e *Entry) ownQuestion() ask.Question {
	id := e.me()
	return ask.Question{Directory: id.Directory, Former: id.Former,
		Ensemble: e.Ensemble, Shards: e.Shards, Tick: e.Tick, Levels: e.Levels,
		Schemes: e.Schemes, Founder: e.Member, Founders: e.founders(), Met: e.met.Load() != nil,
		Name: e.Name, Zone: e.Zone, Address: e.Advertise, Observer: e.Observer}
}

// AskAll asks all seeds, founders and members in the table who they are.
func (e *Entry) AskAll(ctx context.Context) (answers []ask.Answer, silent []ask.Silence) {
	if e.Alone {
		return nil, nil
	}
	names := e.seeds()
	for _, m := range e.Roster.Table().List {
		if m.OutOf() == 0 && m.Address != "" && !slices.Contains(names, m.Address) {
			names = append(names, m.Address)
		}
	}
	return ask.All(ctx, e.Transport, e.Network, names, e.ownQuestion())
}

// mayFound returns the founders, with their directories, if this node is to found the ensemble with
// them, or goes on with what they have founded. It returns nil if this node is to join. The error says
// what is missing to decide.
//
// Nobody founds because nobody answers, but a sole founder: all founders must be there and fresh.
// So those who come first cannot found beside others that come later.
func (e *Entry) mayFound(ctx context.Context, answers []ask.Answer, silent []ask.Silence) (map[MemberID][16]byte, error) {
	if e.Options.Found == nil && e.Member == 0 || e.me().Former != (replication.Former{}) { // there is an ensemble that it was in
		return nil, nil
	}
	members := slices.DeleteFunc(slices.Clone(answers), func(a ask.Answer) bool { return a.Member == 0 })
	if e.Options.Found != nil {
		if len(members) > 0 {
			return nil, nil
		}
		yes, err := service.Call(ctx, "Config.Found", e.Options.Found)
		switch {
		case err != nil:
			return nil, fmt.Errorf("Config.Found does not say whether to found: %w", err)
		case yes:
			return map[MemberID][16]byte{cmp.Or(e.Member, 1): e.me().Directory}, nil
		}
		return nil, fmt.Errorf("%w: Config.Found says no, so this node waits for a member, or for the node to which Found says yes; %w",
			roster.ErrJoining, e.noMember(answers, silent))
	}
	return e.foundWithOthers(answers, silent)
}

// foundWithOthers returns the founders in Config.Members if all of them are there, want the same, and
// have met the same directories. Once one of them has founded, the others follow it.
func (e *Entry) foundWithOthers(answers []ask.Answer, silent []ask.Silence) (map[MemberID][16]byte, error) {
	founders, present := e.founders(), map[MemberID][16]byte{e.Member: e.me().Directory}
	has := func(m MemberID) bool { _, is := present[m]; return is }
	var others string
	var founded map[MemberID][16]byte // by somebody who had met all founders, this node included
	var fellows, former []ask.Answer
	for _, a := range answers {
		agrees := slices.Equal(a.Founders, founders) && a.Ensemble == e.Ensemble && a.Shards == e.Shards
		switch {
		case a.Was != 0 && a.Ensemble == e.Ensemble:
			former = append(former, a)
		case a.Founder != 0 && !agrees:
			others += fmt.Sprintf("; the node at %s has %s", a.Address, Settings(a.Ensemble, a.Founders, a.Shards))
		case a.Founder != 0 && has(a.Founder):
			return nil, errTwice(a.Founder)
		case a.Founder != 0:
			present[a.Founder] = a.Directory
			fellows = append(fellows, a)
		case len(founders) > 1 && a.Ensemble != e.Ensemble: // the others still have to be there
		case a.Member != 0 && (!slices.Equal(a.Founders, founders) || a.Lineage != (session.Lineage{}) || a.Directories[e.Member] != e.me().Directory):
			// An ensemble that others founded, or one that had another directory as this founder.
			return nil, nil
		case a.Member != 0:
			founded = a.Directories
		}
	}
	if founded != nil {
		return founded, nil
	}
	if len(former) > 0 {
		return nil, fmt.Errorf("%w: there is an ensemble, of which the node at %s was member %d: set Join to a member of it, or empty that directory if there is none any more",
			roster.ErrJoining, former[0].Address, former[0].Was)
	}
	if missing := slices.DeleteFunc(slices.Clone(founders), has); len(missing) > 0 {
		if others != "" {
			others = "; this node has " + Settings(e.Ensemble, founders, e.Shards) + others
		}
		return nil, fmt.Errorf("%w: the founders in Members found it together, and members %s are missing%s%s", roster.ErrJoining, replication.Listed(missing), others, because(silent))
	}
	if strangers := e.strangers(silent); len(strangers) > 0 {
		return nil, fmt.Errorf("%w: the founders are there, but an ensemble may be where addresses in Join do not answer: %s: start who is there, or take out of Join what is gone",
			roster.ErrJoining, listed(strangers))
	}
	if err := e.agree(present, fellows); err != nil {
		return nil, err
	}
	return present, nil
}

// strangers returns who does not answer at an address in Join, and is none of the founders.
func (e *Entry) strangers(silent []ask.Silence) []ask.Silence {
	founders := slices.Collect(maps.Values(e.Members))
	return slices.DeleteFunc(slices.Clone(silent), func(s ask.Silence) bool { return slices.Contains(founders, s.Name) })
}

// agree returns why this node does not found yet with those that are present, or nil. Each founder says
// once with which directories it founds, and founds when all others have said the same. So no two of
// them found with different ones, whoever met whom. Nobody takes back what he has said: another one may
// have counted on it, and founded.
func (e *Entry) agree(present map[MemberID][16]byte, fellows []ask.Answer) error {
	e.met.CompareAndSwap(nil, &present)
	for m, was := range *e.met.Load() {
		if now := present[m]; now != was {
			return fmt.Errorf("%w: member %d had the directory %x, and has %x: if two processes are member %d, stop one; then restart this node", roster.ErrJoining, m, was, now, m)
		}
	}
	for _, a := range fellows {
		if a.Directories == nil {
			return fmt.Errorf("%w: the founder at %s has yet to meet the others", roster.ErrJoining, a.Address)
		}
		for m, dir := range a.Directories {
			if present[m] != dir {
				return fmt.Errorf("%w: the founder at %s has met member %d with the directory %x, this node with %x: if two processes are member %d, stop one; then restart that founder",
					roster.ErrJoining, a.Address, m, dir, present[m], m)
			}
		}
	}
	return nil
}

// FoundedWith returns the directories of the founders with which this node has founded.
func (e *Entry) FoundedWith() map[MemberID][16]byte {
	with := map[MemberID][16]byte{e.Roster.Self(): e.me().Directory}
	maps.Copy(with, e.me().Peers)
	return with
}

func errTwice(m MemberID) error {
	return fmt.Errorf("%w: two nodes say that they are member %d: give each an ID of its own", roster.ErrJoining, m)
}

// Settings says what must be the same on all founders.
func Settings(ensemble string, founders []MemberID, shards int) string {
	return fmt.Sprintf("Ensemble %q, Members %s and Shards %d", ensemble, replication.Listed(founders), shards)
}

// because lists who did not answer.
func because(silent []ask.Silence) string {
	if len(silent) == 0 {
		return ""
	}
	return "; no answer from " + listed(silent)
}

func listed(silent []ask.Silence) string {
	list := make([]string, len(silent))
	for i, s := range silent {
		list[i] = s.Why
	}
	return strings.Join(list, ", ")
}

// noMember says, without a member that could let this node in, who is there instead, and why this
// node founds no ensemble.
func (e *Entry) noMember(answers []ask.Answer, silent []ask.Silence) error {
	var there string
	for _, a := range answers {
		if a.Member != 0 {
			there += fmt.Sprintf("; member %d at %s lets nobody in yet: its ensemble has no lineage", a.Member, a.Address)
		} else {
			there += fmt.Sprintf("; the node at %s has yet to join, too", a.Address)
		}
	}
	switch former := e.me().Former; {
	case former != (replication.Former{}):
		there += fmt.Sprintf("; this node was member %d before, so it founds nothing", former.Member)
	case e.Options.Found == nil && e.Member == 0:
		there += "; this node has no Found and is not in Members, so it founds nothing"
	}
	return fmt.Errorf("no seed of %v is a member that lets others in%s%s", e.Join, there, because(silent))
}

// join asks to be let in, at the members that have answered. The leader decides.
func (e *Entry) join(ctx context.Context, me replication.Identity, answers []ask.Answer, silent []ask.Silence) (replication.Identity, error) {
	answers = e.meant(answers)
	var first *ask.Answer
	for i := range answers {
		a := &answers[i]
		switch {
		case a.Member == 0 || a.Lineage == (session.Lineage{}):
		case first == nil:
			first = a
		case a.Lineage != first.Lineage:
			return me, fmt.Errorf("%w: the seeds are members of different ensembles: member %d at %s is of lineage %v, member %d at %s of %v: set Join to members of one of them",
				roster.ErrJoining, first.Member, first.Address, first.Lineage, a.Member, a.Address, a.Lineage)
		}
	}
	if first == nil {
		return me, fmt.Errorf("%w: %w", roster.ErrJoining, e.noMember(answers, silent))
	}
	var errs []error
	for _, a := range answers {
		if a.Lineage != first.Lineage || a.Member == 0 {
			continue
		}
		admitted, err := e.joinAt(ctx, a)
		if err != nil {
			if len(errs) == 0 || errs[len(errs)-1].Error() != err.Error() { // others name the same leader
				errs = append(errs, err)
			}
			continue
		}
		me.Found(admitted, first.Founders)
		me.Joined, me.Lineage, me.Ancestors = true, first.Lineage, nil
		for _, l := range first.Ancestors {
			me.Ancestors = append(me.Ancestors, l)
		}
		for m, address := range a.Members {
			e.Roster.Met(m, address)
		}
		return me, nil
	}
	return me, fmt.Errorf("%w: %w", roster.ErrJoining, errors.Join(errs...))
}

// meant leaves out the answers of members without which forced recoveries have gone on, and of members
// of ensembles with another name. If there are no others, the leader says what is wrong.
func (e *Entry) meant(answers []ask.Answer) []ask.Answer {
	named := slices.ContainsFunc(answers, e.isNamesake)
	return slices.DeleteFunc(slices.Clone(answers), func(a ask.Answer) bool {
		ended := slices.ContainsFunc(answers, func(next ask.Answer) bool { return slices.Contains(next.Ancestors, a.Lineage) })
		return ended || named && !e.isNamesake(a)
	})
}

// isNamesake reports whether a member answers whose ensemble has the name of this node's.
func (e *Entry) isNamesake(a ask.Answer) bool { return a.Member != 0 && a.Ensemble == e.Ensemble }

// joinAt asks the leader that a member names to let this node in.
func (e *Entry) joinAt(ctx context.Context, a ask.Answer) (MemberID, error) {
	q := e.ownQuestion()
	q.Join, q.Lineage = true, a.Lineage
	for range ask.HopsMax {
		address := a.Members[a.Leader]
		if a.Leader == 0 || address == "" {
			return 0, fmt.Errorf("member %d knows of no leader", a.Member)
		}
		next, err := ask.Ask(ctx, e.Transport, transport.Target{Address: address}, q)
		switch {
		case err != nil:
			return 0, fmt.Errorf("member %d at %s, which leads: %w", a.Leader, address, err)
		case next.Member != 0 && next.Lineage != q.Lineage:
			return 0, fmt.Errorf("%s was said to lead: %w", address, next.IsNot(q.Lineage))
		case next.Refused != "":
			return 0, fmt.Errorf("member %d refuses it: %s", next.Member, next.Refused)
		case next.Admitted != 0:
			return next.Admitted, nil
		}
		a = next
	}
	return 0, errors.New("the leadership changes too often")
}
