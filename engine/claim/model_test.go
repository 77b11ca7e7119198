package claim

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/tree"
)

const id = 7

var (
	errUnknown = errors.New("unknown")
	errRefused = errors.New("refused")
	errEnd     = errors.New("session ended")
)

// A world is a claim with all that is around it: its session, the ensemble, and what a reader of
// Life's drawing expects. It is the claim's owner.
type world struct {
	life  Life
	heir  bool
	asked []string
	// byAnswer says that the owner learns from an answer that the claim's znodes were deleted for it,
	// as a client does. Otherwise it sees them go, as a member does.
	byAnswer bool

	known  bool // the outcome of the claim's transaction
	znodes map[string]bool
	listed map[string]bool
	late   bool // the session's deadline has passed, and maybe nobody has looked
	end    error
	asks   bool // a transaction that deletes the znodes is on its way
	tenure *Tenure

	err            error // expected
	tenured        error // expected of tenure
	held           bool
	wasHeld, again bool
	leaving        bool

	wrong []string
}

func (w *world) failf(format string, args ...any) {
	w.wrong = append(w.wrong, fmt.Sprintf(format, args...))
}

func newWorld(heir, byAnswer bool, asked ...string) *world {
	w := &world{heir: heir, byAnswer: byAnswer, asked: asked, znodes: map[string]bool{}, listed: map[string]bool{}}
	var ops []tree.Op
	for _, path := range asked {
		ops = append(ops, tree.Op{Kind: tree.KindCreate, Path: path, Mode: tree.Ephemeral})
	}
	w.life.Begin(w, ops, heir)
	return w
}

func (w *world) LookAndLock() {
	if !w.late || w.end != nil {
		return
	}
	held, was := w.held, w.wasHeld && w.err == nil
	if was {
		w.over(ErrSuspended)
	}
	r, ended := w.life.SuspendedLocked()
	if ended != was {
		w.failf("suspended: %v, want %v", ended, was)
	}
	w.remove(r, held)
}

func (w *world) Unlock() {}

func (w *world) Ready() error {
	switch {
	case !w.known:
		return errUnknown
	case w.late:
		return ErrSuspended
	}
	return nil
}

func (w *world) Stepped(from State, why error) {
	if from == Held && why == nil {
		w.failf("a tenure ends for no reason")
	}
	paths, _ := w.life.ZnodesLocked()
	for _, path := range paths {
		switch w.life.StateLocked() {
		case Over:
			delete(w.listed, path)
		default:
			w.listed[path] = true
		}
	}
}

func (w *world) Defect(what string) { w.failf("%s", what) }

// over records that the claim is expected to be over.
func (w *world) over(why error) {
	if w.err == nil {
		w.err, w.leaving = why, false
		w.untenured(why)
	}
}

// untenured records that the tenure is expected to end.
func (w *world) untenured(why error) {
	if w.held {
		w.held, w.tenured = false, why
	}
}

// remove carries out what the owner is asked to do.
func (w *world) remove(r Remains, lost bool) {
	if len(r.Paths) > 0 && r.Lost != (lost || w.heir && !w.wasHeld) {
		w.failf("%q linger: %v", r.Paths, r.Lost)
	}
	for _, path := range r.Paths {
		delete(w.znodes, path)
	}
}

// acts are all that can happen. Each reports whether it could.
var acts = []struct {
	name string
	do   func(w *world) bool
}{
	{"applied", func(w *world) bool {
		if w.known {
			return false
		}
		w.known = true
		var results []tree.Result
		for _, path := range w.asked {
			w.znodes[path] = true
			results = append(results, tree.Result{Kind: tree.KindCreate, Path: path, Stat: tree.Stat{Czxid: 3, EphemeralOwner: id}})
		}
		if w.end != nil {
			w.over(w.end)
		}
		w.remove(w.life.AppliedLocked(results, id, w.end), false)
		return true
	}},
	{"refused", func(w *world) bool {
		if w.known {
			return false
		}
		w.known = true
		w.over(errRefused)
		w.life.FinishLocked(errRefused)
		return true
	}},
	{"hold", func(w *world) bool { return w.hold(false) }},
	{"hold again", func(w *world) bool { return w.hold(true) }},
	{"end the tenure", func(w *world) bool {
		if w.tenure == nil {
			return false
		}
		held := w.held
		w.tenure.End() // which looks
		w.untenured(ErrReleased)
		return held
	}},
	{"leave", func(w *world) bool {
		ops, err := w.life.Leave()
		if can := w.err == nil && w.known && !w.leaving; can != (err == nil) || err != nil && !errors.Is(err, tree.ErrNotHeld) {
			w.failf("leave: %v", err)
		}
		if err != nil || w.asks {
			return false
		}
		if want := (tree.Op{Kind: tree.KindDelete, Path: w.asked[0], Version: tree.AnyVersion, Czxid: 3}); len(ops) != len(w.asked) || !reflect.DeepEqual(ops[0], want) {
			w.failf("leave: %v", ops)
		}
		w.untenured(ErrReleased)
		w.asks, w.leaving = true, true
		return true
	}},
	{"left", func(w *world) bool {
		if !w.asks || len(w.znodes) < len(w.asked) {
			return false
		}
		w.asks = false
		clear(w.znodes)
		w.over(ErrReleased)
		if w.byAnswer {
			w.life.FinishLocked(ErrReleased)
			return true
		}
		for _, path := range w.asked {
			w.remove(w.life.GoneLocked(path), false)
		}
		return true
	}},
	{"not left", func(w *world) bool {
		if !w.asks {
			return false
		}
		w.asks, w.leaving = false, false
		if r := w.life.StayLocked(); w.end == nil {
			w.remove(r, false)
		}
		return true
	}},
	{"deleted", func(w *world) bool {
		path := w.asked[0]
		if !w.znodes[path] {
			return false
		}
		delete(w.znodes, path)
		if w.leaving {
			w.over(ErrReleased) // nobody knows yet that the transaction fails
		}
		w.over(ErrDeleted)
		w.remove(w.life.GoneLocked(path), false)
		return true
	}},
	{"late", func(w *world) bool {
		was := w.late
		w.late = true
		return !was
	}},
	{"proved", func(w *world) bool {
		was := w.late
		w.LookAndLock()
		w.late = false
		return was
	}},
	{"release", func(w *world) bool {
		w.LookAndLock()
		w.over(ErrReleased)
		r := w.life.EndLocked(ErrReleased)
		w.remove(r, false)
		return w.end == nil
	}},
	{"the session ends", func(w *world) bool {
		if w.end != nil {
			return false
		}
		w.end = errEnd
		if w.known {
			w.over(errEnd)
			w.life.FinishLocked(errEnd)
		}
		return true
	}},
}

// hold holds the claim, and compares with what is drawn.
func (w *world) hold(again bool) bool {
	t, err := w.life.Hold(again)
	var want error
	switch {
	case w.err != nil:
		want = w.err
	case !w.known:
		want = errUnknown
	case w.late:
		want = ErrSuspended
	case w.held || w.leaving || w.wasHeld && !(again && w.again):
		want = tree.ErrNotHeld
	}
	if (t == nil) != (want != nil) || !errors.Is(err, want) {
		w.failf("hold: %v, want %v", err, want)
	}
	if t == nil {
		return false
	}
	w.tenure, w.tenured, w.held, w.wasHeld, w.again = t, nil, true, true, again
	return true
}

// check compares the claim with what is expected, without a look at the clock.
func (w *world) check() {
	late := w.late
	w.late = false
	defer func() { w.late = late }()
	closed := func(c <-chan struct{}) bool {
		select {
		case <-c:
			return true
		default:
			return false
		}
	}
	if err := w.life.Err(); err != w.err || closed(w.life.Done()) != (err != nil) {
		w.failf("ended with %v, want %v", err, w.err)
	}
	if t := w.tenure; t != nil && (t.Err() != w.tenured || closed(t.Done()) != (w.tenured != nil) || closed(t.Context().Done()) != (w.tenured != nil)) {
		w.failf("the tenure ended with %v, want %v", t.Err(), w.tenured)
	}
	if live := w.known && w.err == nil; live != (len(w.listed) == len(w.asked)) || !live && len(w.listed) > 0 {
		w.failf("listed are %v", w.listed)
	}
	for path := range w.listed {
		if err := w.life.VerifyLocked(path); err != nil {
			w.failf("%v", err)
		}
	}
	if w.known && w.err != nil && !w.asks && w.end == nil && len(w.znodes) > 0 {
		w.failf("%v are left behind", slices.Collect(maps.Keys(w.znodes)))
	}
}

// Whatever happens in whatever order, a claim does what Life draws, takes no other step, and leaves
// nothing behind.
func TestModel(t *testing.T) {
	depth, runs := 6, 0
	if testkit.Night() {
		depth = 7
	}
	for _, heir := range []bool{false, true} {
		for _, byAnswer := range []bool{false, true} {
			for _, asked := range [][]string{{"/a"}, {"/a", "/b"}} {
				var extend func(script []int)
				extend = func(script []int) {
					w := newWorld(heir, byAnswer, asked...)
					could := true
					for _, i := range script {
						could = acts[i].do(w)
						w.check()
					}
					if runs++; len(w.wrong) > 0 {
						var names []string
						for _, i := range script {
							names = append(names, acts[i].name)
						}
						t.Fatalf("heir %v, by answer %v, %q: %s: %s", heir, byAnswer, asked, strings.Join(names, ", "), strings.Join(w.wrong, "; "))
					}
					if !could || len(script) == depth {
						return
					}
					for i := range acts {
						extend(append(script[:len(script):len(script)], i))
					}
				}
				extend(nil)
			}
		}
	}
	t.Logf("%d scripts", runs)
}
