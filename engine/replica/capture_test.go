package replica

import (
	"context"
	"errors"
	"testing"

	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/storage"
	"github.com/vivarium-go/vivarium/tree"
)

// A Capture has all that was applied, also what was not saved yet, and nothing later.
func TestCapture(t *testing.T) {
	r := newRig(t)
	create := func(z tree.Zxid, path string) {
		t.Helper()
		if _, err := r.commit(tree.Header{Zxid: z}, []tree.Op{{Kind: tree.KindCreate, Path: path}}, nil); err != nil {
			t.Fatal(err)
		}
		r.apply(command.EncodeExpire(1, 1))
	}
	create(1, "/a")
	c, err := r.Capture(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	create(2, "/b")
	var paths []string
	if err := c.Scan(storage.Znodes, nil, func(key, _ []byte) bool { paths = append(paths, string(key)); return true }); err != nil {
		t.Fatal(err)
	}
	if len(paths) != c.Znodes || c.Znodes != r.Figures().Znodes-1 || paths[1] != "/a" || c.State.Zxid != 1 || c.Applied() != 1 {
		t.Errorf("%q, %+v", paths, c)
	}
}

// A Capture waits for whoever has the turn, as long as its ctx and its node last. After a Close,
// which drops the tree, there is nothing to capture.
func TestCapture_Ends(t *testing.T) {
	r := newRig(t)
	r.turn <- struct{}{}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Capture(ctx, nil); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	done := make(chan struct{})
	close(done)
	if _, err := r.Capture(t.Context(), done); !errors.Is(err, storage.ErrClosed) {
		t.Error(err)
	}
	r.endTurn()
	r.drop()
	if _, err := r.Capture(t.Context(), nil); !errors.Is(err, storage.ErrClosed) {
		t.Error(err)
	}
}
