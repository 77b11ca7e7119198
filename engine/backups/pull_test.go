package backups

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/engine/ask"
	"github.com/vivarium-go/vivarium/engine/roster"
)

// pulling returns an engine with a backup of these parts. Without any, it gives none yet.
func pulling(parts ...ask.BackupPart) (*Maker, *pull) {
	m := &Maker{pulled: make(chan *pull, 1), Options: Options{Roster: roster.New(nil, nil, slog.New(slog.DiscardHandler))}}
	p := &pull{id: [16]byte{1}, parts: make(chan ask.BackupPart), over: make(chan struct{}), idle: time.AfterFunc(pullIdle, func() {})}
	go func() {
		if len(parts) == 0 {
			return
		}
		defer close(p.over)
		for _, part := range parts {
			p.parts <- part
		}
	}()
	m.pulled <- p
	return m, p
}

// Each part is given once, and again if its answer was lost; nothing else is.
func TestPull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, p := pulling(ask.BackupPart{Data: []byte("a")}, ask.BackupPart{Data: []byte("b"), Last: true})
		defer p.idle.Stop()
		ask := func(id byte, part uint64) (string, error) {
			got, err := m.Give(t.Context(), &ask.BackupAsk{ID: [16]byte{id}, Part: part})
			if err != nil {
				return "", err
			}
			return string(got.Data), nil
		}
		for _, c := range []struct {
			id    byte
			part  uint64
			data  string
			fails bool
		}{{1, 0, "", false}, {1, 2, "", true}, {2, 0, "", true}, {2, 1, "", true}, {1, 1, "a", false}, {1, 1, "a", false}, {1, 0, "", true}, {1, 2, "b", false}, {1, 2, "b", false}, {1, 3, "", true}, {2, 1, "", true}} {
			if data, err := ask(c.id, c.part); data != c.data || (err != nil) != c.fails {
				t.Errorf("%+v: %q, %v", c, data, err)
			}
			synctest.Wait()
		}
		if _, err := ask(1, 3); err != errPulledWhole {
			t.Error(err)
		}
		m.Private = true
		if _, err := ask(1, 2); err == nil {
			t.Error("a member that decides who may join gives its data to anybody")
		}
	})
}

// With its last part a backup is over, and in nobody's way.
func TestPull_Over(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, p := pulling()
		defer p.idle.Stop()
		go func() {
			p.parts <- ask.BackupPart{Last: true}
			<-time.After(time.Second) // until its goroutine goes on
			close(p.over)
		}()
		part, err := m.Give(t.Context(), &ask.BackupAsk{ID: p.id, Part: 1})
		if err != nil || !part.Last {
			t.Errorf("%+v, %v", part, err)
		}
		if !p.isOver() {
			t.Error("it has still to end")
		}
	})
}

// A question that nobody waits for any more takes no part with it.
func TestPull_LostQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, p := pulling()
		defer p.idle.Stop()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := m.Give(ctx, &ask.BackupAsk{ID: p.id, Part: 1}); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		go func() { p.parts <- ask.BackupPart{Data: []byte("a")} }()
		if part, err := m.Give(t.Context(), &ask.BackupAsk{ID: p.id, Part: 1}); err != nil || string(part.Data) != "a" {
			t.Errorf("%v, %v", part, err)
		}
	})
}

// What is written in any pieces comes in parts of one size.
func TestPartWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := make(chan ask.BackupPart)
		w := partWriter{ctx: t.Context(), to: all}
		want := bytes.Repeat([]byte("0123456789"), pullPart/4)
		var got []byte
		go func() {
			defer close(all)
			for rest := want; len(rest) > 0; {
				n := min(len(rest), 1+len(rest)/3)
				if m, err := w.Write(rest[:n]); m != n || err != nil {
					t.Error(m, err)
				}
				rest = rest[n:]
			}
			if err := w.give(true); err != nil {
				t.Error(err)
			}
		}()
		for part := range all {
			if len(part.Data) != pullPart && !part.Last {
				t.Errorf("a part of %d bytes", len(part.Data))
			}
			got = append(got, part.Data...)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%d bytes, want %d", len(got), len(want))
		}
	})
}
