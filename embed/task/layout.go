package task

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/internal/queue"
)

// A Layout says how the znodes of a queue are named, and so in which order the tasks begin. Each
// has the form of a client of ZooKeeper, which can use the same queue through the gateway.
type Layout int

// Layouts.
const (
	Locking  Layout = iota // by priority; kazoo's LockingQueue
	Entries                // by priority; kazoo's Queue
	Plain                  // first in, first out; Curator's DistributedQueue
	Priority               // by priority; Curator's DistributedPriorityQueue
	Delay                  // by PutOptions.At; Curator's DistributedDelayQueue
	Simple                 // first in, first out; Curator's SimpleDistributedQueue, ZooKeeper's recipe
)

// A layout is what is particular to a Layout.
type layout struct {
	prefix string
	inside bool // the parts of the queue are below its path, not beside it
	framed bool // the data has Curator's frame
}

var layouts = []layout{
	Locking:  {prefix: "entry-", inside: true},
	Entries:  {prefix: "entry-"},
	Plain:    {prefix: "queue-", framed: true},
	Priority: {prefix: "queue-", framed: true},
	Delay:    {prefix: "queue-", framed: true},
	Simple:   {prefix: "qn-"},
}

// part returns the path of a part of the queue: its locks, tries, or dead tasks.
func (l *layout) part(path, name string) string {
	if l.inside {
		return queue.Child(path, name)
	}
	return path + "-" + name
}

// entries returns the path of the znode whose children are the tasks.
func (l *layout) entries(path string) string {
	if l.inside {
		return queue.Child(path, "entries")
	}
	return path
}

const (
	digits = 10 // of a sequence number

	// kazooPriority is the priority of a task of kazoo for which none is given, our zero.
	kazooPriority = 100

	// Times in milliseconds have eleven hexadecimal digits since November 2004, and had ten before,
	// since 1972. So the order of the names is that of the times, if earlier ones are put as these,
	// and none later than June 2527, which have twelve.
	elevenDigits = 1 << 40
	tenDigits    = 1 << 36
	twelveDigits = 1 << 44
)

// name returns the name of a task without its sequence number.
func (l Layout) name(o PutOptions, now time.Time) (string, error) {
	prefix := layouts[l].prefix
	if l != Delay && !o.At.IsZero() {
		return "", fmt.Errorf("%w: PutOptions.At needs the layout Delay", embed.ErrInvalidArgument)
	}
	switch l {
	case Locking, Entries:
		p := o.Priority + kazooPriority
		if p < 0 || p > 999 {
			return "", fmt.Errorf("%w: PutOptions.Priority is %d, not from -100 to 899",
				embed.ErrInvalidArgument, o.Priority)
		}
		return fmt.Sprintf("%s%03d-", prefix, p), nil
	case Priority:
		if o.Priority < math.MinInt32 || o.Priority > math.MaxInt32 {
			return "", fmt.Errorf("%w: PutOptions.Priority is %d, which has more than 32 bits",
				embed.ErrInvalidArgument, o.Priority)
		}
		sign := 1
		if o.Priority < 0 {
			sign = 0
		}
		return fmt.Sprintf("%s%d%08X", prefix, sign, uint32(o.Priority)), nil
	}
	if o.Priority != 0 {
		return "", fmt.Errorf("%w: the layout has no priorities, but PutOptions.Priority is %d",
			embed.ErrInvalidArgument, o.Priority)
	}
	if l != Delay {
		return prefix, nil
	}
	if o.At.IsZero() {
		o.At = now
	}
	if !o.At.Before(time.UnixMilli(twelveDigits)) {
		return "", fmt.Errorf("%w: PutOptions.At is %v, too late for the layout",
			embed.ErrInvalidArgument, o.At)
	}
	first := int64(elevenDigits)
	if now.UnixMilli() < elevenDigits { // in a test with virtual time
		first = tenDigits
	}
	return fmt.Sprintf("%s|%08X|", prefix, max(o.At.UnixMilli(), first)), nil
}

// due returns when a task may begin, and whether a name is that of a task at all. Curator puts a
// task again without its priority or time, so those layouts have names without. A name with more
// digits is none: it may sort before tasks that are due.
func (l Layout) due(name string) (at time.Time, ok bool) {
	rest, ok := strings.CutPrefix(name, layouts[l].prefix)
	if !ok || len(rest) < digits || strings.Trim(rest[len(rest)-digits:], "0123456789") != "" {
		return at, false
	}
	switch rest = rest[:len(rest)-digits]; l {
	case Locking, Entries:
		return at, len(rest) == len("100-") && rest[3] == '-'
	case Plain, Simple:
		return at, rest == ""
	case Priority:
		return at, rest == "" || len(rest) == len("1000000FF")
	}
	if rest == "" {
		return at, true
	}
	hex, end := strings.CutSuffix(rest, "|")
	hex, begin := strings.CutPrefix(hex, "|")
	ms, err := strconv.ParseInt(hex, 16, 64)
	return time.UnixMilli(ms), begin && end && err == nil && ms < twelveDigits
}

// rank returns what orders a task before those that were put at other times: its priority. Those of
// the layout Delay that are due all have the same.
func (l Layout) rank(name string) string {
	if l == Delay {
		return ""
	}
	return name[:len(name)-digits]
}

// errFrame says that data have no frame of Curator.
var errFrame = errors.New("the data do not have the frame of a task")

const (
	frameVersion = 0x00010001
	frameItem    = 0x01
	frameEnd     = 0x02
)

// encode returns the data of a task's znode.
func (l *layout) encode(data []byte) []byte {
	if !l.framed {
		return data
	}
	b := binary.BigEndian.AppendUint32(nil, frameVersion)
	b = binary.BigEndian.AppendUint32(append(b, frameItem), uint32(len(data)))
	return append(append(b, data...), frameEnd)
}

// decode returns what a znode has: one element, or as many as a client of Curator has put at once.
func (l *layout) decode(data []byte) (items [][]byte, err error) {
	if !l.framed {
		return [][]byte{data}, nil
	}
	if len(data) < 5 || binary.BigEndian.Uint32(data) != frameVersion {
		return nil, errFrame
	}
	for data = data[4:]; len(data) > 0; {
		if data[0] == frameEnd && len(data) == 1 && len(items) > 0 {
			return items, nil
		}
		if data[0] != frameItem || len(data) < 5 {
			break
		}
		n := uint64(binary.BigEndian.Uint32(data[1:]))
		if data = data[5:]; n > uint64(len(data)) {
			break
		}
		items, data = append(items, data[:n:n]), data[n:]
	}
	return nil, errFrame
}
