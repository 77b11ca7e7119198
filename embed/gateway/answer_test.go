package gateway

import "testing"

// An answer takes no step that the package doc does not draw.
func TestAnswerStates(t *testing.T) {
	drawn := map[answerState][]answerState{
		answerMade:      {answerPending, answerFollowing, answerPlaced},
		answerPending:   {answerPlaced},
		answerFollowing: {answerPlaced},
		answerPlaced:    nil,
	}
	for from, nexts := range drawn {
		want := make(map[answerState]bool)
		for _, next := range nexts {
			want[next] = true
		}
		for to := answerMade; to <= answerPlaced; to++ {
			if got := !panics(func() { a := answer{state: from}; a.goTo(to) }); got != want[to] {
				t.Errorf("from state %d to %d: %v", from, to, got)
			}
		}
	}
}

// A connection goes through its stages in order, and may end at any of them.
func TestConnectionStages(t *testing.T) {
	for from := stageGreeting; from <= stageEnded; from++ {
		for to := stageGreeting; to <= stageEnded; to++ {
			want := to == from+1 || to == stageEnded || from == stageEnded
			c := &conn{stage: from}
			if got := !panics(func() { c.goToLocked(to) }); got != want {
				t.Errorf("from stage %d to %d: %v", from, to, got)
			}
			if from == stageEnded && c.stage != stageEnded {
				t.Errorf("an ended connection is in stage %d", c.stage)
			}
		}
	}
}

func panics(fn func()) (is bool) {
	defer func() { is = recover() != nil }()
	fn()
	return false
}
