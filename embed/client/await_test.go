package client_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/view"
)

// G10: many callers that wait in vain for transactions to come hold up neither each other nor the
// views and reads of their session.
func TestAwaitsInVain(t *testing.T) {
	virtually(t, func(w *world) {
		t := w.t
		s := w.session(embed.SessionOptions{})
		writer := w.ens.Session(w.member(s), embed.SessionOptions{})
		must(t, w.put(writer, "/v", "1"))
		_, err := s.Sync(t.Context(), "/v")
		must(t, err)
		v, err := view.Open(t.Context(), s, "/v", view.Options[string]{})
		must(t, err)
		since := v.Zxid()
		vain, cancel := context.WithCancel(t.Context())
		var waiting sync.WaitGroup
		for i := range 300 {
			waiting.Go(func() {
				if err := s.Await(vain, fmt.Sprint("/v/", i), 1<<40); !errors.Is(err, context.Canceled) {
					t.Errorf("a zxid to come: %v", err)
				}
			})
		}
		synctest.Wait()
		stat, err := writer.Put(t.Context(), "/v", []byte("2"))
		must(t, err)
		short, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		for c, err := range v.Changes(short, since) {
			if err != nil || c.New.Value != "2" {
				t.Errorf("beside them a view shows %+v, %v", c, err)
			}
			break
		}
		if err := s.Await(short, "/v", stat.Mzxid); err != nil {
			t.Errorf("one that waits for what was written: %v", err)
		}
		if _, _, err := s.Get(short, "/v"); err != nil {
			t.Errorf("a read: %v", err)
		}
		cancel()
		waiting.Wait()
		must(t, v.Close())
	})
}
