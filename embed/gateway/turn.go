package gateway

import "sync/atomic"

// A turn is whose turn it is to send. Who finds it free takes it. Who does not says that there is more to be sent, and whoever has it looks
// once more before giving it up. So nobody waits for it, and it may be asked for under any lock.
type turn struct{ state atomic.Int32 }

const (
	turnFree int32 = iota
	turnTaken
	turnWanted // taken, and there is more since
	turnOver   // nobody takes it any more
)

// take reports whether the caller has the turn. Otherwise it is the one who has it that looks again.
func (t *turn) take() bool {
	for {
		switch was := t.state.Load(); was {
		case turnFree:
			if t.state.CompareAndSwap(was, turnTaken) {
				return true
			}
		case turnTaken:
			if t.state.CompareAndSwap(was, turnWanted) {
				return false
			}
		default:
			return false
		}
	}
}

// giveUp is for who has the turn and has seen that nothing is ready. It is to look again if there is more since; if the turn is over it
// is the last who had it.
func (t *turn) giveUp() (again, over bool) {
	switch {
	case t.state.CompareAndSwap(turnTaken, turnFree):
		return false, false
	case t.state.CompareAndSwap(turnWanted, turnTaken):
		return true, false
	}
	return false, true
}

// end has nobody take the turn any more, and reports whether somebody has it.
func (t *turn) end() (taken bool) { return t.state.Swap(turnOver) != turnFree }
