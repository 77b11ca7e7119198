package campaign

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/lock"
)

// never is the end of a call that has not ended.
const never = time.Duration(math.MaxInt64)

// An op is one call of a session as its caller saw it. The times are the caller's: the call was
// under way at most between them.
type op struct {
	Client  string // issues one op after the other
	Session string
	Member  embed.MemberID
	Run     int
	Call    call
	Path    string
	Data    string // of a write: an id that no other write has
	Version int32  // the version that a write requires
	TTL     time.Duration
	Begin   time.Duration
	End     time.Duration
	Outcome outcome
	// its place among writes that were issued without waiting; zero if it was issued alone
	Crowd int
	// what a read read, the path that was created, or the zxid and the data that a swap was to replace
	Got    string
	Stat   embed.Stat
	Zxid   embed.Zxid    // what a Sync promised
	Why    string        // the error's text
	Passed time.Duration // when it passed a double barrier or the end of a countdown
}

func (o *op) write() bool {
	switch o.Call {
	case callCreate, callSet, callDelete, callPay:
		return true
	}
	return false
}

// wrote returns the zxid of an acknowledged write. It returns zero if the zxid is not known; a
// delete does not say.
func (o *op) wrote() embed.Zxid {
	if o.Outcome != applied {
		return 0
	}
	switch o.Call {
	case callCreate, callPay:
		return o.Stat.Czxid
	case callSet, callSwap:
		return o.Stat.Mzxid
	}
	return 0
}

// A life is one session: its owner, and its end.
type life struct {
	Name    string
	ID      embed.SessionID
	Member  embed.MemberID
	Run     int
	Timeout time.Duration
	Remote  bool     // a client of the gateways has opened it
	Markers []string // ephemerals that show that it lives, the first of them on the home shard
	Perhaps int      // markers that may exist: the outcome of their creation is unknown
	Opened  time.Duration
	Ended   time.Duration // when the caller learned of the end; never if it has not
	Why     string
	Closed  time.Duration // when its owner heard that it is closed; zero if never
}

// home returns the marker on the home shard. It is empty if there is none.
func (l *life) home() string {
	if len(l.Markers) == 0 {
		return ""
	}
	return l.Markers[0]
}

// A grant is one hold of one path, with its holder.
type grant struct {
	Path   string
	Member embed.MemberID
	Run    int
	Died   bool // its holder's process was killed before it reported an end
	holding
}

// A sighting is a leader that an observer saw.
type sighting struct {
	Token lock.Token
	Value string
}

// An observation is what one observer saw, in order.
type observation struct {
	Path string
	Seen []sighting
}

// A tape is what one watch delivered from one area. A watch on the root has several tapes.
type tape struct {
	Member embed.MemberID
	Path   string
	Mode   embed.WatchMode
	Since  embed.Zxid // it was armed here or later
	Armed  embed.Zxid // it was armed here or earlier
	Events []event
	Synced embed.Zxid // it is complete up to here at least, if it ended in the regular way
	Why    string     // the error with which it ended, if any
}

// A breakage is the deletion of a contender's znode by somebody else.
type breakage struct {
	Path  string // of the lock
	Czxid embed.Zxid
	At    time.Duration // not before
}

// A removal is the end of a session's marker as a watch delivered it.
type removal struct {
	Path string
	Zxid embed.Zxid
	At   time.Duration // when it was known
}

// An expiry is the expiry of a session as a node saw it in the log.
type expiry struct {
	ID embed.SessionID
	At time.Duration // when the node reported it
}

// A history records everything that was done and seen in a round. Its methods may be called
// concurrently.
type history struct {
	now      func() time.Duration // Ground.Now
	portions bool                 // past.Portions

	mu struct {
		sync.Mutex
		past
	}
}

// A jump is a moment at which a clock was set ahead.
type jump struct{ At, By time.Duration }

// An abandonment is the end of a run whose directory is gone. Its sessions are over for their
// callers, but nobody closes them: they end by their timeouts.
type abandonment struct {
	Member embed.MemberID
	Run    int
}

// A past is a history at one moment.
type past struct {
	// Before is the history that a forced recovery has ended. It is complete. Nil means that there
	// was no recovery.
	Before *past
	// Survivor is the member in whose directory the ensemble lived on after this history. Zero means
	// that the history has not ended in a recovery.
	Survivor  embed.MemberID
	Ops       []op
	Lives     []life
	Grants    []grant
	Breaks    []breakage
	Observers []observation
	Tapes     []tape
	Removals  []removal
	Expiries  []expiry
	Jumps     []jump
	Calms     []calm
	Abandoned []abandonment
	Deeds     []deed
	Taken     time.Duration // the moment
	Portions  bool          // sessions that expired together ended in several transactions
}

// begin records that a call is issued and returns its place.
func (h *history) begin(o op) int { return h.beginAt(h.now(), o) }

func (h *history) beginAt(begun time.Duration, o op) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	o.Begin, o.End, o.Outcome = begun, never, unknown
	h.mu.Ops = append(h.mu.Ops, o)
	return len(h.mu.Ops) - 1
}

// end records the answer.
func (h *history) end(at int, r Reply) {
	h.mu.Lock()
	defer h.mu.Unlock()
	o := &h.mu.Ops[at]
	o.Outcome, o.Stat, o.Zxid, o.Why = r.Outcome, r.Stat, r.Zxid, r.Error
	if o.Outcome != unknown {
		o.End = h.now()
	}
	o.Got, o.Passed = r.Data, r.At
	if o.write() {
		o.Got = r.Path
	}
}

// expiryRemote is how many timeouts a remote session may stay after its client was last heard, if
// commits are slow; see package gateway.
const expiryRemote = 8

// over returns the names of the sessions that the ensemble must know to be over soon: their callers
// know that they ended. Those of abandoned members are not among them. They expire, and each change
// of the leader may add a quarter of their timeout. A remote session whose owner could not close it
// expires too, after expiryRemote timeouts at most.
func (h *history) over() map[string]bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	names := make(map[string]bool)
	for _, l := range h.mu.Lives {
		lost := slices.Contains(h.mu.Abandoned, abandonment{l.Member, l.Run})
		if l.Remote {
			lost = l.Closed == 0 && h.now() < l.Ended+expiryRemote*l.Timeout
		}
		if l.Ended != never && !lost {
			names[l.Name] = true
		}
	}
	return names
}

// marker returns some marker of one of the newest sessions. It is empty if that session has none.
func (h *history) marker(rng *rand.Rand) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	newest := h.mu.Lives[max(0, len(h.mu.Lives)-peekAmong):]
	l := newest[rng.IntN(len(newest))]
	if len(l.Markers) == 0 {
		return ""
	}
	return l.Markers[rng.IntN(len(l.Markers))]
}

// add appends to one of the lists and returns the place. edit changes the entry at a place.
func add[T any](h *history, list func(*past) *[]T, v T) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	l := list(&h.mu.past)
	*l = append(*l, v)
	return len(*l) - 1
}

func edit[T any](h *history, list func(*past) *[]T, at int, fn func(*T)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	fn(&(*list(&h.mu.past))[at])
}

func lives(p *past) *[]life            { return &p.Lives }
func grants(p *past) *[]grant          { return &p.Grants }
func breaks(p *past) *[]breakage       { return &p.Breaks }
func observers(p *past) *[]observation { return &p.Observers }
func tapes(p *past) *[]tape            { return &p.Tapes }
func removals(p *past) *[]removal      { return &p.Removals }
func expiries(p *past) *[]expiry       { return &p.Expiries }
func jumps(p *past) *[]jump            { return &p.Jumps }
func calms(p *past) *[]calm            { return &p.Calms }
func abandoned(p *past) *[]abandonment { return &p.Abandoned }
func deeds(p *past) *[]deed            { return &p.Deeds }

// snapshot returns the history as it is now. In it, calls that are under way have an unknown
// outcome.
func (h *history) snapshot() *past {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := &past{
		Before: h.mu.Before, Ops: slices.Clone(h.mu.Ops), Lives: slices.Clone(h.mu.Lives), Grants: slices.Clone(h.mu.Grants), Breaks: slices.Clone(h.mu.Breaks),
		Removals: slices.Clone(h.mu.Removals), Expiries: slices.Clone(h.mu.Expiries), Jumps: slices.Clone(h.mu.Jumps), Calms: slices.Clone(h.mu.Calms), Deeds: slices.Clone(h.mu.Deeds), Taken: h.now(),
		Portions: h.portions,
	}
	for _, o := range h.mu.Observers {
		o.Seen = slices.Clone(o.Seen)
		p.Observers = append(p.Observers, o)
	}
	for _, t := range h.mu.Tapes {
		t.Events = slices.Clone(t.Events)
		p.Tapes = append(p.Tapes, t)
	}
	return p
}

// cut ends the history at a forced recovery, and begins another. No call is under way.
func (h *history) cut(survivor embed.MemberID) {
	before := h.snapshot()
	before.Survivor = survivor
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.past = past{Before: before}
}

// save writes a history to a file, one line per entry, and what was before a recovery first.
func (p *past) save(dir string) error {
	f, err := os.Create(filepath.Join(dir, "history.jsonl"))
	if err != nil {
		return err
	}
	defer f.Close()
	enc := json.NewEncoder(f)
	for _, part := range p.parts() {
		for _, list := range []any{part.Ops, part.Lives, part.Grants, part.Observers, part.Tapes, part.Deeds} {
			if err := saveList(enc, list); err != nil {
				return err
			}
		}
	}
	return f.Sync()
}

// parts returns the histories from the first one to p, between which there was a recovery each.
func (p *past) parts() (all []*past) {
	for ; p != nil; p = p.Before {
		all = append(all, p)
	}
	slices.Reverse(all)
	return all
}

func saveList(enc *json.Encoder, list any) (err error) {
	switch l := list.(type) {
	case []op:
		err = saveEach(enc, "op", l)
	case []life:
		err = saveEach(enc, "session", l)
	case []grant:
		err = saveEach(enc, "grant", l)
	case []observation:
		err = saveEach(enc, "observer", l)
	case []tape:
		err = saveEach(enc, "watch", l)
	case []deed:
		err = saveEach(enc, "deed", l)
	}
	return err
}

func saveEach[T any](enc *json.Encoder, kind string, list []T) error {
	for i := range list {
		if err := enc.Encode(map[string]any{kind: &list[i]}); err != nil {
			return err
		}
	}
	return nil
}
