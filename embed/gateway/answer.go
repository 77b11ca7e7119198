package gateway

import (
	"fmt"
	"time"

	"github.com/vivarium-go/vivarium/engine"
	"github.com/vivarium-go/vivarium/internal/wire"
	"github.com/vivarium-go/vivarium/tree"
	"github.com/vivarium-go/vivarium/watch"
)

// An answer is what the client gets for one request. The reader queues it when it handles the
// request.
//
// Every answer has a place among the events of the connection's watches. Events before that place
// are sent before the answer. The state says whether the place is known, and otherwise where it
// will come from. The package doc draws the states.
type answer struct {
	state   answerState
	place   watch.Place    // set if state is answerPlaced
	pending engine.Pending // of a write
	reply   wire.Reply     // complete except for Zxid and, for a write, the outcome
	multi   []wire.Op      // the ops of a multi

	last     bool // the connection ends behind this answer
	readOnly bool // the request only reads
	ownZxid  bool // reply.Zxid is final; otherwise it becomes that of place
	bytes    int
	arrived  time.Time
}

type answerState uint8

// The states of an answer.
const (
	answerMade    answerState = iota // the reader makes the answer
	answerPending                    // a write: the place comes from its outcome
	// answerFollowing is the state of an answer that is queued behind one without a place. It takes
	// the place of the answer before it.
	answerFollowing
	answerPlaced // the place is known
)

// goTo moves the answer to its next state. A step that the package doc does not draw is a defect
// and panics.
func (a *answer) goTo(next answerState) {
	if next <= a.state || a.state == answerPending && next == answerFollowing {
		panic(fmt.Sprintf("gateway: answer in state %d goes to %d", a.state, next))
	}
	a.state = next
}

// placeAt gives the answer its place among the events.
func (a *answer) placeAt(p watch.Place) {
	a.goTo(answerPlaced)
	a.place = p
}

// ready reports whether the answer can be sent as soon as it is the first in the queue.
func (a *answer) ready() bool { return a.state != answerPending || a.pending.Known() }

// fill puts the outcome of a write into its reply. It returns an error that the client cannot be
// told.
func (a *answer) fill(results []tree.Result, err error) error {
	switch {
	case a.reply.Op == wire.OpNative:
		return a.fillNative(results, err)
	case a.multi != nil:
		return a.fillMulti(results, err)
	}
	code, ok := codeOf(err)
	if !ok {
		return err
	}
	a.reply.Err = code
	if code == wire.OK {
		a.reply.Path, a.reply.Stat = results[0].Path, statOf(&results[0].Stat)
	}
	return nil
}

// complete fills in the answer to a read. It returns an error that the client cannot be told.
func (a *answer) complete(err error) error {
	code, ok := codeOf(err)
	if !ok {
		return err
	}
	a.reply.Err, a.bytes = code, sizeOf(&a.reply.Result)
	for _, u := range a.reply.Users {
		a.bytes += len(u.Scheme) + len(u.Name) + 32
	}
	for i := range a.reply.Results {
		a.bytes += answerBytes + sizeOf(&a.reply.Results[i])
	}
	return nil
}

// sizeOf returns about how many bytes a result takes.
func sizeOf(r *wire.Result) int {
	n := len(r.Path) + len(r.Data)
	for _, a := range r.ACL {
		n += len(a.Scheme) + len(a.ID) + 48
	}
	for _, name := range r.Names {
		n += len(name) + 16
	}
	return n
}
