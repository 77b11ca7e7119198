package lock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/lock"
	"github.com/vivarium-go/vivarium/internal/testkit"
)

// DoWith hands its function the Hold, whose guard a write can have, with the options of both.
func TestDoWith_GuardsWithItsHold(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := one(t)
		s := ens.Session(1, embed.SessionOptions{Root: "/tenant"})
		from := embed.OpenerWith(ens.Opener(1), embed.SessionOptions{Timeout: 20 * time.Second, Root: "/tenant"})
		must(t, lock.DoWith(bounded(t), from, path, lock.Options{Note: "it is me"}, func(ctx context.Context, h *lock.Hold) error {
			if timeout := h.Session().Timeout(); timeout != 20*time.Second {
				t.Errorf("a timeout of %v", timeout)
			}
			holders, err := lock.Holders(ctx, s, path)
			if len(holders) != 1 || holders[0].Note != "it is me" || err != nil {
				t.Errorf("%+v, %v", holders, err)
			}
			if inner, ok := lock.Held(ctx, "/tenant"+path); !ok || inner.Token() != h.Token() {
				t.Errorf("%v, %v", inner, ok)
			}
			write := embed.OpCreate("/work", nil, embed.Persistent)
			_, err = h.Session().Multi(ctx, lock.Guard(h), write)
			must(t, err)
			must(t, h.Release())
			if _, err = h.Session().Multi(bounded(t), lock.Guard(h), embed.OpSet("/work", nil, embed.AnyVersion)); !errors.Is(err, embed.ErrNotHeld) {
				t.Errorf("a guard after the release: %v", err)
			}
			return nil // what was released is not lost
		}))
		free(t, s)
		if new(lock.Hold).Session() != nil {
			t.Error("the zero Hold has a session")
		}
	})
}

// What cannot be is refused before anything is opened.
func TestDoWith_RefusesOptions(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ens := one(t)
		for _, o := range []lock.Options{{Keep: time.Second}, {Delay: -1}} {
			err := lock.DoWith(bounded(t), ens.Opener(1), path, o, func(context.Context, *lock.Hold) error { return errors.New("it ran") })
			if !errors.Is(err, embed.ErrInvalidArgument) {
				t.Errorf("%+v: %v", o, err)
			}
		}
	})
}
