package replica

import (
	"slices"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/engine/enginetest"
	"github.com/vivarium-go/vivarium/session"
)

// Where more sessions are due than one entry may end, the expirer is woken to propose the next one.
func TestMoreThanAPortionWakesTheExpirer(t *testing.T) {
	r := newRig(t)
	r.Portion = 1
	o := session.Origin{Member: 2, Start: 1, Directory: [16]byte{2}, Digest: enginetest.Origin().Digest, Level: command.FormatLevel}
	open := command.EncodeRequest(&command.Request{Kind: command.RequestOpen, Timeout: 10 * time.Second})
	r.apply(command.EncodeRegister(o, 1, command.Rules{}), command.EncodeBatch(2, 1, 1, 1, 0, 2, slices.Values([][]byte{open, open})))
	o.Start++
	r.apply(command.EncodeRegister(o, 1, command.Rules{})) // the sessions of the start before are due
	if left := r.mu.table.DueLen(); left != 1 || len(r.expirer.wake) != 1 {
		t.Errorf("%d sessions are due, and the expirer is woken %d times", left, len(r.expirer.wake))
	}
}
