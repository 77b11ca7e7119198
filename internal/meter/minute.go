package meter

// Steps is how many steps a Minute remembers. Each is a sixth of it: 10 s.
const Steps = 6

// A Minute remembers what a Histogram had counted, to tell what it has counted lately. Its owner
// calls Step every 10 s. The zero value remembers the beginning. One goroutine at a time may use it.
type Minute struct {
	past [Steps]Reading // the oldest is at next
	next int
}

// Step records what the histogram has counted so far.
func (m *Minute) Step(now Reading) {
	m.past[m.next] = now
	m.next = (m.next + 1) % Steps
}

// Since returns what was counted during the last 50 to 60 s.
func (m *Minute) Since(now Reading) Reading { return now.Less(m.past[m.next]) }
