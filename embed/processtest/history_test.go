//go:build unix

package processtest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/lock"
)

// A writer issues writes one after the other, and knows what each of them may have left behind.
// Only one goroutine at a time calls its methods.
type writer interface {
	// begin is called for every new session before the session is used.
	begin(t *testing.T, r *run, session string) error
	// step issues the next write and returns its outcome.
	step(t *testing.T, r *run, session string) outcome
	// verify checks what is left at the end, when nothing is in flight.
	verify(t *testing.T, left *remains)
}

// remains are the znodes that exist at the end of a test.
type remains struct {
	znodes   map[string]entry
	children map[string][]string
}

func newRemains(tree []entry) *remains {
	l := &remains{znodes: make(map[string]entry), children: make(map[string][]string)}
	for _, z := range tree {
		l.znodes[z.Path] = z
		i := strings.LastIndexByte(z.Path, '/')
		l.children[z.Path[:i]] = append(l.children[z.Path[:i]], z.Path)
	}
	return l
}

// ledger has the outcome of each write, by the write's id.
type ledger map[string]outcome

// check compares the outcomes with the paths at which each id was found.
func (l ledger) check(t *testing.T, found map[string][]string) {
	t.Helper()
	for id, o := range l {
		paths := found[id]
		switch {
		case len(paths) > 1:
			t.Errorf("%s (%s) was applied %d times: %v", id, o, len(paths), paths)
		case o == applied && len(paths) == 0:
			t.Errorf("%s was acknowledged and is lost", id)
		case o != applied && o != unknown && len(paths) == 1:
			t.Errorf("%s was %s, and is there: %v", id, o, paths)
		}
	}
}

// counter makes the ids of a writer's writes.
type counter struct {
	name string
	n    int
}

func (c *counter) next() string {
	c.n++
	return c.name + "." + strconv.Itoa(c.n)
}

// A namer creates sequential znodes. All namers use one parent, so that a name given twice, or a
// create applied twice, would show.
type namer struct {
	counter
	done  ledger
	names map[string]string // names of acknowledged creates
}

const namesPath = "/names"

func (w *namer) begin(*testing.T, *run, string) error { return nil }

func (w *namer) step(_ *testing.T, r *run, session string) outcome {
	id := w.next()
	a, _ := r.call(request{Call: callCreate, Session: session, Path: namesPath + "/n-", Data: id, Mode: int(embed.Sequential)})
	w.done[id] = a.Outcome
	if a.Outcome == applied {
		w.names[id] = a.Path
	}
	return a.Outcome
}

func (w *namer) verify(t *testing.T, left *remains) {
	found := make(map[string][]string)
	for _, path := range left.children[namesPath] {
		id := left.znodes[path].Data
		if name, ok := w.names[id]; ok && name != path {
			t.Errorf("%s was acknowledged as %s and is %s", id, name, path)
		}
		found[id] = append(found[id], path)
	}
	w.done.check(t, found)
}

// verifyNames checks what all namers made together: numbers without a gap, in the order of their
// transactions.
func verifyNames(t *testing.T, left *remains) {
	paths := left.children[namesPath]
	slices.Sort(paths)
	var last embed.Zxid
	for i, path := range paths {
		if want := fmt.Sprintf("%s/n-%010d", namesPath, i); path != want {
			t.Errorf("%s follows %d others, want %s", path, i, want)
			return
		}
		if z := left.znodes[path].Stat.Czxid; z <= last {
			t.Errorf("%s was created at %d, the one before at %d", path, z, last)
		} else {
			last = z
		}
	}
	stat := left.znodes[namesPath].Stat
	if int(stat.NumChildren) != len(paths) || int(stat.Cversion) != len(paths) {
		t.Errorf("%s says %d children, child version %d; it has %d and lost none", namesPath, stat.NumChildren, stat.Cversion, len(paths))
	}
}

// A setter writes one znode that nobody else writes, with any version. Each applied set counts the
// version up by one, so the version tells how many were applied.
type setter struct {
	counter
	path    string
	crowd   int // sets that are issued at once; zero means one after the other
	run     int // the run to which the writes of maybe belong
	version int32
	value   string
	maybe   []string // writes with unknown outcomes since version, in order
	crowds  int      // how many crowds they belong to
}

// crowdLen is large enough that several batches are in flight at a time.
const crowdLen = 600

// begin reads what a killed process left. That is final: no batch of that process can be applied
// any longer.
func (w *setter) begin(t *testing.T, r *run, session string) error {
	if r.number == w.run {
		return nil
	}
	a, err := r.call(request{Call: callGet, Session: session, Path: w.path})
	if err != nil {
		return err
	}
	w.check(t, a.Data, a.Stat)
	w.run = r.number
	w.known(a.Stat.Version, a.Data)
	return nil
}

func (w *setter) known(version int32, value string) {
	w.version, w.value, w.maybe, w.crowds = version, value, nil, 0
}

func (w *setter) check(t *testing.T, value string, stat embed.Stat) {
	at := slices.Index(w.maybe, value) + 1 // how many of maybe were issued up to value
	switch extra := int(stat.Version - w.version); {
	case extra < 0 || extra > len(w.maybe):
		t.Errorf("%s: version %d, %q; version %d was acknowledged and the outcome of %d sets is unknown", w.path, stat.Version, value, w.version, len(w.maybe))
	case extra == 0 && value != w.value:
		t.Errorf("%s: %q with version %d, want %q", w.path, value, stat.Version, w.value)
	case extra > at:
		t.Errorf("%s: %q with version %d: more sets were applied since version %d than were issued", w.path, value, stat.Version, w.version)
	case w.crowds == 1 && extra != at:
		t.Errorf("%s: %q with version %d: %d sets were issued up to it since version %d, and not all were applied", w.path, value, stat.Version, at, w.version)
	}
}

func (w *setter) step(t *testing.T, r *run, session string) outcome {
	id := w.next()
	if w.crowd == 0 {
		a, _ := r.call(request{Call: callSet, Session: session, Path: w.path, Data: id, Version: embed.AnyVersion})
		w.note(t, id, a.Outcome, a.Stat.Version)
		return a.Outcome
	}
	a, err := r.call(request{Call: callSets, Session: session, Path: w.path, Data: id, Count: w.crowd})
	if err != nil {
		a.Each, a.Version = slices.Repeat([]outcome{unknown}, w.crowd), make([]int32, w.crowd)
	}
	before := len(w.maybe)
	for i, o := range a.Each {
		if o == applied {
			before = 0
		}
		w.note(t, id+"-"+strconv.Itoa(i), o, a.Version[i])
	}
	if len(w.maybe) > before {
		w.crowds++
	}
	return worst(a.Each)
}

// note records one outcome, and checks the version that an acknowledged set made.
func (w *setter) note(t *testing.T, id string, o outcome, version int32) {
	switch o {
	case applied:
		if extra := int(version - w.version - 1); extra < 0 || extra > len(w.maybe) {
			t.Errorf("%s: %s made version %d; version %d was known and the outcome of %d sets unknown", w.path, id, version, w.version, len(w.maybe))
		}
		w.known(version, id)
	case unknown:
		w.maybe = append(w.maybe, id)
	}
}

func (w *setter) verify(t *testing.T, left *remains) {
	z := left.znodes[w.path]
	w.check(t, z.Data, z.Stat)
}

// A teller transfers units from one account to another. The version checks of its transactions let
// one teller succeed at a time.
type teller struct {
	counter
	done ledger
}

const bankPath = "/bank"

func (w *teller) begin(*testing.T, *run, string) error { return nil }

func (w *teller) step(_ *testing.T, r *run, session string) outcome {
	id := w.next()
	a, _ := r.call(request{Call: callTransfer, Session: session, Path: bankPath, Data: id})
	w.done[id] = a.Outcome
	return a.Outcome
}

func (w *teller) verify(t *testing.T, left *remains) {
	found := make(map[string][]string)
	for _, path := range left.children[bankPath] {
		if strings.HasPrefix(path, bankPath+"/log-") {
			id := left.znodes[path].Data
			found[id] = append(found[id], path)
		}
	}
	w.done.check(t, found)
}

// verifyBank checks what all tellers did together: every transfer happened as a whole.
func verifyBank(t *testing.T, left *remains) {
	transfers := len(left.children[bankPath]) - 2
	a, b := left.znodes[bankPath+"/a"], left.znodes[bankPath+"/b"]
	if a.Data != strconv.Itoa(-transfers) || b.Data != strconv.Itoa(transfers) ||
		int(a.Stat.Version) != transfers || int(b.Stat.Version) != transfers {
		t.Errorf("after %d transfers the accounts hold %q and %q, with versions %d and %d", transfers, a.Data, b.Data, a.Stat.Version, b.Stat.Version)
	}
}

// A tidier creates znodes and deletes every second one again.
type tidier struct {
	counter
	created, deleted ledger
}

const tidyPath = "/tidy"

func (w *tidier) begin(*testing.T, *run, string) error { return nil }

func (w *tidier) step(_ *testing.T, r *run, session string) outcome {
	id := w.next()
	path := tidyPath + "/" + id
	a, _ := r.call(request{Call: callCreate, Session: session, Path: path})
	w.created[id] = a.Outcome
	if a.Outcome == applied && w.n%2 == 0 {
		a, _ = r.call(request{Call: callDelete, Session: session, Path: path, Version: embed.AnyVersion})
		w.deleted[id] = a.Outcome
	}
	return a.Outcome
}

func (w *tidier) verify(t *testing.T, left *remains) {
	for id, o := range w.created {
		_, there := left.znodes[tidyPath+"/"+id]
		d, tried := w.deleted[id]
		switch {
		case o == refused || d == refused:
			t.Errorf("%s: creating it was %s, deleting it %s", id, o, d)
		case there && d == applied:
			t.Errorf("%s was deleted and is there", id)
		case there && o == notApplied:
			t.Errorf("%s was not created and is there", id)
		case !there && o == applied && (!tried || d == notApplied):
			t.Errorf("%s was created and is lost", id)
		}
	}
}

// A submitter issues many creates without waiting. They are applied in order, so the ones that
// exist are the first ones.
type submitter struct {
	counter
	bursts map[string][]outcome
}

const (
	burstsPath = "/bursts"
	burstLen   = 8
)

func (w *submitter) begin(*testing.T, *run, string) error { return nil }

func (w *submitter) step(_ *testing.T, r *run, session string) outcome {
	id := w.next()
	a, err := r.call(request{Call: callBurst, Session: session, Path: burstsPath + "/" + id, Count: burstLen})
	if err != nil {
		a.Each = slices.Repeat([]outcome{unknown}, burstLen)
	}
	w.bursts[id] = a.Each
	return worst(a.Each)
}

// worst returns an outcome other than applied, if there is one.
func worst(each []outcome) outcome {
	if i := slices.IndexFunc(each, func(o outcome) bool { return o != applied }); i >= 0 {
		return each[i]
	}
	return applied
}

func (w *submitter) verify(t *testing.T, left *remains) {
	for id, each := range w.bursts {
		var last embed.Zxid
		missing := -1
		for i, o := range each {
			z, there := left.znodes[fmt.Sprintf("%s/%s-%d", burstsPath, id, i)]
			switch {
			case !there && o == applied:
				t.Errorf("%s-%d was acknowledged and is lost", id, i)
			case there && o != applied && o != unknown:
				t.Errorf("%s-%d was %s, and is there", id, i, o)
			case there && missing >= 0:
				t.Errorf("%s-%d is there, %s-%d, issued before it, is not", id, i, id, missing)
			case there && z.Stat.Czxid <= last:
				t.Errorf("%s-%d was created at %d, the one before at %d", id, i, z.Stat.Czxid, last)
			}
			if !there {
				missing = max(missing, i)
			} else {
				last = z.Stat.Czxid
			}
		}
	}
}

// A locker acquires a lock that all lockers want, keeps it for a moment and releases it.
type locker struct {
	name     string
	sections []section
}

// A section is one hold of the lock that its process released, on the clock that all processes
// share.
type section struct {
	who         string
	token       lock.Token
	from, until time.Duration // from Lock's return to the last question answered "still held"
}

const sectionsPath = "/locks/load"

func (w *locker) begin(*testing.T, *run, string) error { return nil }

func (w *locker) step(_ *testing.T, r *run, session string) outcome {
	a, err := r.call(request{Call: callSection, Session: session, Path: sectionsPath, Within: patience})
	if err != nil {
		return notApplied
	}
	w.sections = append(w.sections, section{who: w.name, token: *a.Token, from: a.At, until: a.Until})
	return applied
}

func (w *locker) verify(t *testing.T, left *remains) {
	if names := left.children[sectionsPath]; len(names) > 0 {
		t.Errorf("contenders of ended sessions are left: %v", names)
	}
}

// verifySections checks what all lockers saw together: once a locker had the lock, no earlier
// holder was told that it still held it. It returns how many sections there were.
func verifySections(t *testing.T, all []section) int {
	slices.SortFunc(all, func(a, b section) int { return a.token.Compare(b.token) })
	for i := 1; i < len(all); i++ {
		a, b := all[i-1], all[i]
		if a.token == b.token {
			t.Errorf("%s and %s have the same token %v", a.who, b.who, a.token)
		}
		if a.until >= b.from {
			t.Errorf("%s had the lock with token %v from %v on, and %s with %v was told until %v that it held it", b.who, b.token, b.from, a.who, a.token, a.until)
		}
		all[i].until = max(a.until, b.until) // for sections after both
	}
	return len(all)
}
