package embed_test

import (
	"context"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/lock"
)

func TestSmoke(t *testing.T) {
	n := 1
	if os.Getenv("N") == "3" {
		n = 3
	}
	ens := embedtest.New(t, n, embedtest.Options{Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelInfo}))})
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	s := ens.Session(1, embed.SessionOptions{})
	t0 := time.Now()
	for i := range 100 {
		_ = i
		if _, err := s.Create(ctx, "/a", []byte("x"), embed.Sequential); err != nil {
			t.Fatal(err)
		}
	}
	t.Log(time.Since(t0) / 100)
	h, err := lock.NewMutex(s, "/locks/a").Lock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Log(h.Token(), h.Path(), h.Err())
	if err := h.Release(); err != nil {
		t.Fatal(err)
	}
	names, _, err := s.Children(ctx, "/")
	t.Log(len(names), err)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
