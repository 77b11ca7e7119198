//go:build unix

package processtest

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/vivarium-go/vivarium/embed"
)

// A writer issues writes one after the other and knows what each of them may have left behind. Its methods are called by
// one goroutine at a time.
type writer interface {
	// begin is told of every new session before it is used.
	begin(t *testing.T, r *run, session string) error
	// step issues the next write and returns its outcome.
	step(t *testing.T, r *run, session string) outcome
	// verify compares what is left at the end, when nothing is in flight.
	verify(t *testing.T, left *remains)
}

// remains are the znodes at the end of a test.
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

// ledger holds the outcomes of writes that carry an id each.
type ledger map[string]outcome

// settle compares the outcomes with the paths at which each id was found.
func (l ledger) settle(t *testing.T, found map[string][]string) {
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

// A namer creates sequential znodes, all of them under one parent, so that a name given twice, and a create applied twice,
// would show.
type namer struct {
	counter
	done  ledger
	names map[string]string // of acknowledged creates
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
	w.done.settle(t, found)
}

// verifyNames checks what all namers made together: numbers without a gap, in the order of their transactions.
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

// A setter writes one znode that nobody else writes, whatever its version: each set that is applied counts the version up
// by one, so the version says how many were.
type setter struct {
	counter
	path    string
	run     int // that the writes of maybe belong to
	version int32
	value   string
	mzxid   embed.Zxid
	maybe   []string // unknown outcomes since version, oldest first
}

// begin reads what a killed process left: it is decided by now, a batch of that process can be applied no more.
func (w *setter) begin(t *testing.T, r *run, session string) error {
	if r.number == w.run {
		return nil
	}
	a, err := r.call(request{Call: callGet, Session: session, Path: w.path})
	if err != nil {
		return err
	}
	w.check(t, a.Data, a.Stat)
	w.run, w.version, w.value, w.maybe = r.number, a.Stat.Version, a.Data, nil
	return nil
}

func (w *setter) check(t *testing.T, value string, stat embed.Stat) {
	at := slices.Index(w.maybe, value) + 1 // how many of maybe were issued up to value
	switch extra := int(stat.Version - w.version); {
	case extra < 0 || extra > len(w.maybe):
		t.Errorf("%s: version %d, %q; %d sets were acknowledged and the outcome of %d is unknown", w.path, stat.Version, value, w.version, len(w.maybe))
	case extra == 0 && value != w.value:
		t.Errorf("%s: %q with version %d, want %q", w.path, value, stat.Version, w.value)
	case extra > at:
		t.Errorf("%s: %q with version %d: more sets were applied since version %d than were issued, of %v", w.path, value, stat.Version, w.version, w.maybe)
	}
}

func (w *setter) step(t *testing.T, r *run, session string) outcome {
	id := w.next()
	a, _ := r.call(request{Call: callSet, Session: session, Path: w.path, Data: id, Version: embed.AnyVersion})
	switch a.Outcome {
	case applied:
		if extra := int(a.Stat.Version - w.version - 1); extra < 0 || extra > len(w.maybe) {
			t.Errorf("%s: %s made version %d; version %d was known and the outcome of %d unknown", w.path, id, a.Stat.Version, w.version, len(w.maybe))
		}
		if a.Stat.Mzxid <= w.mzxid {
			t.Errorf("%s: %s has zxid %d, an earlier one %d", w.path, id, a.Stat.Mzxid, w.mzxid)
		}
		w.version, w.value, w.mzxid, w.maybe = a.Stat.Version, id, a.Stat.Mzxid, nil
	case unknown:
		w.maybe = append(w.maybe, id)
	}
	return a.Outcome
}

func (w *setter) verify(t *testing.T, left *remains) {
	z := left.znodes[w.path]
	w.check(t, z.Data, z.Stat)
}

// A teller moves units from one account to another in transactions whose version checks let one of all tellers pass at a
// time.
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
	w.done.settle(t, found)
}

// verifyBank checks what all tellers made together: every transfer happened entirely.
func verifyBank(t *testing.T, left *remains) {
	transfers := len(left.children[bankPath]) - 2
	a, b := left.znodes[bankPath+"/a"], left.znodes[bankPath+"/b"]
	if a.Data != strconv.Itoa(-transfers) || b.Data != strconv.Itoa(transfers) ||
		int(a.Stat.Version) != transfers || int(b.Stat.Version) != transfers {
		t.Errorf("after %d transfers the accounts hold %q and %q, with versions %d and %d", transfers, a.Data, b.Data, a.Stat.Version, b.Stat.Version)
	}
}

// A tidier creates znodes and deletes every other one again.
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

// A submitter issues many creates without waiting. They are applied in order, so what is left is the first so many of them.
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
	worst := applied
	for _, o := range a.Each {
		worst = cmp.Or(map[outcome]outcome{applied: worst}[o], o)
	}
	return worst
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
