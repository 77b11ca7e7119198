package engine

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/vivarium-go/vivarium/internal/files"
	"github.com/vivarium-go/vivarium/replication/transport"
	"github.com/vivarium-go/vivarium/storage/disk"
)

// A peer may refuse a node while Start opens it. The node fails only afterwards. Else Start would
// return the refusal or not, as chance has it.
func TestRefused_WaitsForStart(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		d, err := disk.Open(files.OS, dir)
		if err != nil {
			t.Fatal(err)
		}
		e := &Engine{disk: d, opened: make(chan struct{})}
		go e.refused(t.Context(), 1, &transport.Refusal{Kind: transport.ErrForgot, Text: "no"})
		synctest.Wait()
		if err := d.Err(); err != nil {
			t.Errorf("failed during Start: %v", err)
		}
		over, cancel := context.WithCancel(t.Context())
		cancel()
		e.refused(over, 1, &transport.Refusal{Kind: transport.ErrForgot, Text: "no"}) // Start fails otherwise: it returns
		close(e.opened)
		synctest.Wait()
		if d.Err() == nil {
			t.Error("not failed after Start")
		}
	})
}
