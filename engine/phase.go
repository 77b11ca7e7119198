package engine

import "time"

// A phase is a part of a node's start.
type phase int

const (
	phaseOpen     phase = iota // until everything is opened, and the images are in memory
	phaseReplay                // until what the log knows to be committed is applied
	phaseRegister              // until the ensemble has registered the member
	phases
)

// String returns the phase as the metrics name it.
func (p phase) String() string { return [...]string{"open", "replay", "register"}[p] }

// A StartTime is how long a phase of the start took.
type StartTime struct {
	Phase string
	Took  time.Duration
}

// endPhase records that a phase has ended.
func (e *Engine) endPhase(p phase) {
	took := time.Since(e.started)
	for before := range p {
		took -= time.Duration(e.meters.phases[before].Load())
	}
	e.meters.phases[p].Store(int64(max(took, 1)))
}

// startTimes returns the phases that have ended.
func (e *Engine) startTimes() (list []StartTime) {
	for p := range phases {
		if took := e.meters.phases[p].Load(); took > 0 {
			list = append(list, StartTime{p.String(), time.Duration(took)})
		}
	}
	return list
}
