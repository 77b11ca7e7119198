package client_test

import (
	"errors"
	"testing"

	"github.com/vivarium-go/vivarium/embed"
)

// D14: the events that wait for a slow consumer are bounded in bytes, too.
func TestWatchOfLargeData(t *testing.T) {
	if testing.Short() {
		t.Skip("it moves much data, which says nothing of races")
	}
	virtually(t, func(w *world) {
		t := w.t
		ctx, s := t.Context(), w.session(embed.SessionOptions{})
		writer := w.ens.Session(w.member(s), embed.SessionOptions{})
		must(t, w.put(writer, "/a", ""))
		_, err := s.Sync(ctx, "/a")
		must(t, err)
		o := embed.WatchOptions{Buffer: 1000, Values: true}
		watch, err := s.WatchWith(ctx, "/a", embed.WatchPersistent, o)
		must(t, err)
		data := string(make([]byte, 512<<10))
		for range 60 {
			must(t, w.put(writer, "/a", data))
		}
		_, err = s.Sync(ctx, "/a")
		must(t, err)
		if err := watch.Err(); err != nil {
			t.Errorf("30 MiB wait, and the watch has ended: %v", err)
		}
		for range 10 {
			must(t, w.put(writer, "/a", data))
		}
		_, err = s.Sync(ctx, "/a")
		must(t, err)
		if err := watch.Err(); !errors.Is(err, embed.ErrWatchOverflow) {
			t.Errorf("35 MiB wait, and Err is %v", err)
		}
		for e := range watch.Events() {
			if len(e.Data()) != len(data) {
				t.Errorf("an event with %d bytes", len(e.Data()))
			}
		}
	})
}
