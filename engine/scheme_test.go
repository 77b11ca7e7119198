package engine

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/engine/enginetest"
	"github.com/vivarium-go/vivarium/engine/keeper"
	"github.com/vivarium-go/vivarium/engine/scheme"
	"github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/tree"
)

// brittle is a scheme that panics at ids that it does not expect.
type brittle struct{}

func (brittle) Valid(id string) bool            { return id[3] != 'x' }
func (brittle) Matches(identity, _ string) bool { return identity[3] != 'x' }
func (brittle) Expands() bool                   { panic("no opinion") }

// H3: an id at which a scheme panics is refused, on every replica and at each start, and the node
// goes on. A client chose the id, and the entry is in the log.
func TestPanicOfASchemeCountsAsNo(t *testing.T) {
	schemes := scheme.Judges(tree.Schemes{"brittle": brittle{}}, slog.New(slog.DiscardHandler))
	withSchemes(t, schemes, func(t *testing.T, n *node) {
		n.applyCommand(command.Command{Kind: command.KindRegister, Origin: session.Origin{Member: 2, Start: 1, Directory: [16]byte{2}, Digest: enginetest.Origin().Digest, Level: 1}, Rules: command.Rules{Schemes: []string{"brittle"}}})
		create := func(path, scheme, id string, who ...tree.Identity) error {
			s := n.open(testTimeout, who...)
			p := s.Submit(t.Context(), []tree.Op{{Kind: tree.KindCreate, Path: path, ACL: []tree.ACL{{Perms: tree.PermsAll, Scheme: scheme, ID: id}}}})
			n.commit()
			return keeper.Single(outcome(p))
		}
		short := tree.Identity{Scheme: "brittle", ID: "a"}
		if err := create("/valid", "brittle", "a"); !errors.Is(err, tree.ErrInvalidACL) {
			t.Errorf("Valid panics: %v", err)
		}
		if err := create("/expands", "auth", "", short); !errors.Is(err, tree.ErrInvalidACL) {
			t.Errorf("Expands panics: %v", err)
		}
		if err := create("/fine", "brittle", "long enough"); err != nil {
			t.Error(err)
		}
		if err := create("/fine/child", "brittle", "long enough", short); !errors.Is(err, tree.ErrNoAuth) {
			t.Errorf("Matches panics: %v", err)
		}
		if _, _, err := n.tree().As([]tree.Identity{short}).Get("/fine"); !errors.Is(err, tree.ErrNoAuth) {
			t.Errorf("Matches panics under a read: %v", err)
		}
		if err := create("/fine/child", "brittle", "long enough", tree.Identity{Scheme: "brittle", ID: "long enough"}); err != nil {
			t.Error(err)
		}
	})
}

// A panic of a scheme is logged with its stack, though not every time.
func TestPanicsOfSchemesAreLoggedNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		schemes := scheme.Judges(tree.Schemes{"brittle": brittle{}, "other": brittle{}}, slog.New(slog.NewTextHandler(&out, nil)))
		valid := func(name string) {
			for range 100 {
				if schemes[name].Valid("a") {
					t.Error("a panic counts as yes")
				}
			}
		}
		want := func(lines int) {
			t.Helper()
			synctest.Wait()
			if got := strings.Count(out.String(), "panicked"); got != lines {
				t.Errorf("%d lines, want %d:\n%s", got, lines, &out)
			}
		}
		valid("brittle")
		want(1)
		valid("other")
		want(2)
		for _, word := range []string{"scheme=brittle", "method=Valid", "index out of range", "brittle.Valid"} {
			if !strings.Contains(out.String(), word) {
				t.Errorf("%q is missing:\n%s", word, &out)
			}
		}
		enginetest.Pass(scheme.PanicPause)
		valid("brittle")
		want(3)
	})
}
