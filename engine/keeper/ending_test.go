package keeper

import (
	"testing"

	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/engine/outbox"
)

// A node that opens and closes sessions for years keeps only those that are being closed, and a few.
func TestEnding_DropsWhatIsClosed(t *testing.T) {
	var e ending
	underWay := outbox.NewCall(nil, &command.Request{Kind: command.RequestClose})
	done := outbox.NewCall(nil, &command.Request{Kind: command.RequestClose})
	close(done.Done)
	e.add(&Session{}, []closeCall{{call: done}, {call: underWay}})
	for range 10 * endingLeast {
		e.add(&Session{}, []closeCall{{call: done}})
	}
	if n := len(e.calls); n > endingLeast {
		t.Errorf("it keeps %d", n)
	}
	if left := e.left(); len(left) != 1 || left[0][1].call != underWay {
		t.Errorf("left: %v", left)
	}
}
