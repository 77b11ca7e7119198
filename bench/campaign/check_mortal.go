package campaign

import (
	"fmt"
	"time"
)

// A calm is a time in which nothing was broken and all members were ready.
type calm struct{ From, To time.Duration }

// reapRoom is how long a TTL znode may stay beyond its TTL in a calm. A look at all of them may
// have just been over.
const reapRoom = 2*reapEvery + time.Second

// findEarlyDeaths checks that no TTL znode is gone before its TTL is over. A leader whose clock is
// set ahead may be early by as much.
func findEarlyDeaths(p *past) (found []string) {
	born := p.mortals()
	for i := range p.Ops {
		o := &p.Ops[i]
		m := born[o.Path]
		if m == nil || o.Call != callSyncGet || o.Outcome != noNode {
			continue
		}
		if age := o.End - m.Begin; age < m.TTL-Blur-p.jumps(m.Begin, o.End) {
			found = append(found, fmt.Sprintf("%s is gone after %v, and its TTL is %v", o.Path, age, m.TTL))
		}
	}
	return found
}

// findImmortals checks that a TTL znode is gone soon after its TTL is over. The count begins anew
// with a calm, because a leader that was started or replaced counts from then.
func findImmortals(p *past) (found []string) {
	born := p.mortals()
	calms := p.Calms
	for i := range p.Ops {
		o := &p.Ops[i]
		m := born[o.Path]
		if m == nil || o.Call != callSyncGet || o.Outcome != applied {
			continue
		}
		for len(calms) > 0 && calms[0].To < o.Begin { // ops are in the order of their beginnings
			calms = calms[1:]
		}
		if len(calms) == 0 {
			break
		}
		if alone := o.Begin - max(m.End, calms[0].From); alone > m.TTL+reapRoom {
			found = append(found, fmt.Sprintf("%s is still there %v after its creation, %v of it undisturbed, and its TTL is %v", o.Path, o.Begin-m.End, alone, m.TTL))
		}
	}
	return found
}

// mortals returns the creations of TTL znodes, by their paths.
func (p *past) mortals() map[string]*op {
	born := make(map[string]*op)
	for i := range p.Ops {
		if o := &p.Ops[i]; o.TTL > 0 && o.Outcome == applied {
			born[o.Path] = o
		}
	}
	return born
}

// jumps returns how far clocks were set ahead during a time, at most.
func (p *past) jumps(from, to time.Duration) (sum time.Duration) {
	for _, j := range p.Jumps {
		if from <= j.At && j.At <= to {
			sum += j.By
		}
	}
	return sum
}
