package watch

// WaitingMax bounds the bytes of the events that wait for a slow watcher, with their paths and
// data. It is more than one transaction can write. A single event has room whatever its size.
const WaitingMax = 32 << 20

// A Backlog counts the bytes of the events that wait in a channel. Nobody tells it of a receive: it
// remembers the bytes of each event, and learns from the length of the channel how many are left.
// The zero value belongs to an empty channel.
type Backlog struct {
	weights []int // of the newest events, among them all that wait
	bytes   int   // their sum
}

// Add counts an event that is about to be sent to a channel in which some events wait. It returns
// false if there is no room for it.
func (b *Backlog) Add(e Event, waiting int) bool {
	if waiting == 0 {
		b.weights, b.bytes = b.weights[:0], 0 // and keeps the room
	}
	for ; len(b.weights) > waiting; b.weights = b.weights[1:] {
		b.bytes -= b.weights[0]
	}
	n := Weight(e)
	if waiting > 0 && b.bytes+n > WaitingMax {
		return false
	}
	b.weights, b.bytes = append(b.weights, n), b.bytes+n
	return true
}
