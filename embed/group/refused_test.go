package group_test

import (
	"context"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/group"
	"github.com/vivarium-go/vivarium/embed/internal/refusals"
	"github.com/vivarium-go/vivarium/embed/value"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/tree"
)

// The ensemble refuses for ten minutes to record that a member has applied a value. apply is not
// called again, and AwaitApplied returns when it is recorded.
func TestFollow_ARefusedRecord(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		if testkit.Night() {
			t.Skip("it takes minutes in real time")
		}
		slow := func(c *embed.Config) { c.Tick = time.Second }
		ens := embedtest.New(t, 1, embedtest.Options{Config: slow})
		s := ens.Session(1, embed.SessionOptions{})
		v := value.New(s, "/flags", value.Codec[string]{})
		set, err := v.Set(t.Context(), "x")
		must(t, err)
		until, refused := time.Now().Add(10*time.Minute), 0
		from := &refusals.Opener{From: ens.Opener(1), Judge: func(_ int, ops []refusals.Write) error {
			for _, op := range ops {
				if op.Kind == tree.KindSet && time.Now().Before(until) {
					refused++
					return embed.ErrQuotaExceeded
				}
			}
			return nil
		}}
		ctx, cancel := context.WithCancel(t.Context())
		applied, done := 0, make(chan error, 1)
		go func() {
			done <- group.Follow(ctx, from, "/flags", "a", value.Codec[string]{},
				func(context.Context, value.Versioned[string]) error { applied++; return nil })
		}()
		<-time.After(time.Minute)
		_, err = group.AwaitApplied(t.Context(), s, "/flags", set.Mzxid)
		must(t, err)
		if time.Now().Before(until) || applied != 1 || refused < 2 || refused > 100 {
			t.Errorf("it was applied %d times, and refused %d times", applied, refused)
		}
		cancel()
		<-done
	})
}
