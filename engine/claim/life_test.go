package claim

import (
	"errors"
	"slices"
	"testing"

	"github.com/vivarium-go/vivarium/tree"
)

// created has a world's claim created.
func created(t *testing.T, asked ...string) *world {
	t.Helper()
	w := newWorld(false, false, asked...)
	acts[0].do(w)
	if len(w.listed) != len(asked) {
		t.Fatalf("listed are %v", w.listed)
	}
	return w
}

// A step that nobody draws is told, and taken all the same, because it must not end the process. But
// a claim that is over stays over.
func TestStepsThatNobodyDraws(t *testing.T) {
	for from := Submitted; from <= Over; from++ {
		for to := Submitted; to <= Over; to++ {
			w := created(t, "/a")
			w.life.state = from
			w.life.goToLocked(to, ErrReleased)
			legal, want := slices.Contains(steps[from], to), to
			if from == Over {
				want = Over
			}
			if (len(w.wrong) == 0) != legal || w.life.state != want {
				t.Errorf("from %v to %v: it is %v, and told was %q", from, to, w.life.state, w.wrong)
			}
		}
	}
}

// Verify sees what breaks the invariants of Life.
func TestVerify(t *testing.T) {
	w := created(t, "/a", "/b")
	if err := w.life.VerifyLocked("/b"); err != nil {
		t.Error(err)
	}
	for what, spoil := range map[string]func(l *Life){
		"it is over":              func(l *Life) { l.state = Over },
		"nobody knows its znodes": func(l *Life) { l.state = Submitted },
		"it has ended":            func(l *Life) { l.err = ErrReleased },
		"it is held for ever":     func(l *Life) { l.state, l.wasHeld = Held, true },
		"its tenure is no hold":   func(l *Life) { l.tenure, l.wasHeld = &Tenure{life: l}, true },
		"it was not held":         func(l *Life) { l.tenure, l.state = &Tenure{life: l}, Held },
		"it is listed elsewhere":  func(l *Life) { l.paths = l.paths[:1] },
	} {
		w := created(t, "/a", "/b")
		spoil(&w.life)
		if err := w.life.VerifyLocked("/b"); err == nil {
			t.Errorf("%s: no error", what)
		}
	}
}

// What a tenure guards is neither queued nor sent after the tenure was lost. If its owner has given
// it up, what was queued before is sent.
func TestGuards(t *testing.T) {
	for _, c := range []struct {
		end        func(w *world)
		held, kept error
	}{
		{func(*world) {}, nil, nil},
		{func(w *world) { w.tenure.End() }, ErrReleased, nil},
		{func(w *world) { w.life.GoneLocked("/a") }, ErrDeleted, ErrDeleted},
	} {
		for _, again := range []bool{false, true} {
			w := created(t, "/a", "/b")
			w.hold(again)
			if ops, err := w.tenure.Guard(true); err != nil || len(ops) != 2 || ops[1].Kind != tree.KindGuard || ops[1].Path != "/b" || ops[1].Czxid != 3 {
				t.Errorf("guards %v, %v", ops, err)
			}
			if _, err := w.tenure.Guard(false); errors.Is(err, tree.ErrNotHeld) != again {
				t.Errorf("again %v: another session's guard: %v", again, err)
			}
			guards := Guards{w.tenure}
			c.end(w)
			for want, err := range map[*error]error{&c.held: guards.Held(), &c.kept: guards.Kept()} {
				if !errors.Is(err, *want) || *want != nil && !errors.Is(err, tree.ErrNotHeld) {
					t.Errorf("guarded: %v, want %v", err, *want)
				}
			}
			if _, err := w.tenure.Guard(true); !errors.Is(err, c.held) {
				t.Errorf("guards after the end: %v, want %v", err, c.held)
			}
		}
	}
}

func TestMayBe(t *testing.T) {
	create := tree.Op{Path: "/q/c-", Mode: tree.EphemeralSequential}
	for path, want := range map[string]bool{"/q/c-0000000001": true, "/q/c-000000001": false, "/q/c-00000000x1": false, "/q/d-0000000001": false, "/q/c-": false} {
		if got := MayBe(&create, path); got != want {
			t.Errorf("%s: %v", path, got)
		}
	}
	create.Mode = tree.Ephemeral
	if !MayBe(&create, "/q/c-") || MayBe(&create, "/q/c-0000000001") {
		t.Error("an ephemeral without a sequence")
	}
}
