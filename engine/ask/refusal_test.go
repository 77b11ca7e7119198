package ask

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/vivarium-go/vivarium/engine/outbox"
	"github.com/vivarium-go/vivarium/session"
)

// A caller hears the same error at the leader and at any other member: its kind decides on the code
// that a gateway answers.
func TestAnswer_ARefusalKeepsItsKind(t *testing.T) {
	kinds := []error{ErrUnsafe, ErrConfigChanged, ErrReconfiguring, session.ErrNotMember, session.ErrObserver, outbox.ErrUnavailable}
	for _, kind := range append(kinds, errors.New("any other")) {
		atLeader := fmt.Errorf("%w: member 4", kind)
		var sent, got Answer
		sent.Refuse(atLeader)
		text, err := json.Marshal(sent)
		if err == nil {
			err = json.Unmarshal(text, &got)
		}
		if err != nil {
			t.Fatal(err)
		}
		here := got.Refusal()
		if here == nil || here.Error() != atLeader.Error() {
			t.Errorf("%q is %q elsewhere", atLeader, here)
		}
		for _, k := range kinds {
			if errors.Is(here, k) != errors.Is(atLeader, k) {
				t.Errorf("elsewhere %q is the error %q: %v", here, k, errors.Is(here, k))
			}
		}
	}
	if err := (&Answer{Done: true}).Refusal(); err != nil {
		t.Error(err)
	}
}

// A leader's refusal is one, unless it was asked before and the answer was lost. Then the change may
// be recorded, and the error is none of those with which nothing was changed.
func TestRefused_AfterALostAnswer(t *testing.T) {
	unsafe := fmt.Errorf("%w: member 4", ErrUnsafe)
	if err := Refused(unsafe, false, "it"); err != unsafe {
		t.Errorf("asked once: %v", err)
	}
	if err := Refused(unsafe, true, "it"); !errors.Is(err, outbox.ErrUnknownOutcome) || errors.Is(err, ErrUnsafe) {
		t.Errorf("asked again: %v", err)
	}
	if err := Refused(nil, true, "it"); err != nil {
		t.Errorf("not refused: %v", err)
	}
}
