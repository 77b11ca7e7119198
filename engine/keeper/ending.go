package keeper

import (
	"maps"
	"slices"
)

// ending is the set of sessions that have ended on this node and may not have ended for the
// ensemble. Zero is empty.
type ending struct {
	calls map[*Session][]closeCall // that close them
	most  int                      // how many there may be before those that are closed are dropped
}

// endingLeast is how many sessions are always kept. Beyond that, dropping costs as much as adding.
const endingLeast = 64

// add adds a session with the calls that close it.
func (e *ending) add(s *Session, closing []closeCall) {
	if len(e.calls) >= e.most {
		e.drop()
		e.most = max(endingLeast, 2*len(e.calls))
	}
	if e.calls == nil {
		e.calls = make(map[*Session][]closeCall)
	}
	e.calls[s] = closing
}

// left returns the calls of each session that may not have ended for the ensemble.
func (e *ending) left() [][]closeCall {
	e.drop()
	return slices.Collect(maps.Values(e.calls))
}

// drop drops the sessions whose calls all have their outcomes.
func (e *ending) drop() {
	maps.DeleteFunc(e.calls, func(_ *Session, closing []closeCall) bool {
		return !slices.ContainsFunc(closing, func(end closeCall) bool { return !end.call.IsDone() })
	})
}
