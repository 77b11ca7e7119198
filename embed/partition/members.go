package partition

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/internal/queue"
	"github.com/vivarium-go/vivarium/embed/value"
	"github.com/vivarium-go/vivarium/embed/view"
)

// newID returns a random ID.
func newID() string { return strings.ToLower(rand.Text()) }

// An entry is the data of a member's znode.
type entry struct {
	Weight int             `json:"weight"`
	Parts  json.RawMessage `json:"parts"`
}

func encode(weight int, parts []string) []byte {
	list, _ := json.Marshal(parts)               // text never fails
	data, _ := json.Marshal(entry{weight, list}) // nor does this
	return data
}

// A watcher follows who is a member.
type watcher struct {
	view    *view.View[member]
	prefix  string
	kazoo   bool
	changed chan struct{} // of capacity 1
	done    chan struct{} // closed when changesLoop has ended
	cancel  context.CancelFunc

	sets []*set // that were decoded last; owned by the goroutine of the view
}

// setsMax is how many different sets a watcher remembers. A rolling change has two.
const setsMax = 4

// open begins to follow the members.
func (r *runner) open(ctx context.Context, s *embed.Session) (*watcher, error) {
	w := &watcher{prefix: queue.Child(r.members, ""), kazoo: r.o.Kazoo}
	w.changed, w.done = make(chan struct{}, 1), make(chan struct{})
	codec := value.Codec[member]{Decode: w.decode}
	var err error
	w.view, err = view.Open(ctx, s, r.members, view.Options[member]{Codec: codec, Depth: 1})
	if err != nil {
		return nil, err
	}
	ctx, w.cancel = context.WithCancel(ctx)
	go w.changesLoop(ctx)
	return w, nil
}

func (w *watcher) close() {
	w.cancel()
	<-w.done
	_ = w.view.Close()
}

// changesLoop signals each change, until the view ends or ctx does.
func (w *watcher) changesLoop(ctx context.Context) {
	defer close(w.done)
	since := w.view.Zxid()
	w.signal()
	for {
		for c, err := range w.view.Changes(ctx, since) {
			var gap *embed.GapError
			switch {
			case errors.As(err, &gap): // it begins again from there
				since = gap.Zxid
			case err != nil:
				return
			default:
				since = c.Zxid
			}
			w.signal()
		}
	}
}

func (w *watcher) signal() {
	select {
	case w.changed <- struct{}{}:
	default: // whoever takes the last signal sees this change too
	}
}

// members returns those that are there, sorted. It leaves out what does not decode.
func (w *watcher) members() (list []member) {
	for path, e := range w.view.All() {
		if e.Err == nil {
			m := e.Value
			m.name = path[len(w.prefix):]
			m.id = m.name
			if w.kazoo {
				m.id = kazooID(m.name)
			}
			list = append(list, m)
		}
	}
	return list
}

// decode decodes the data of a member's znode.
func (w *watcher) decode(data []byte) (member, error) {
	if w.kazoo {
		return member{weight: 1}, nil // the name has all
	}
	var e entry
	if err := json.Unmarshal(data, &e); err != nil {
		return member{}, err
	}
	if e.Weight < 1 || e.Weight > WeightMax {
		return member{}, fmt.Errorf("a weight of %d", e.Weight)
	}
	s, err := w.set(string(e.Parts))
	return member{weight: e.Weight, set: s}, err
}

// set returns the set that a list stands for.
func (w *watcher) set(raw string) (*set, error) {
	for i, s := range w.sets {
		if s.raw == raw {
			w.sets[0], w.sets[i] = s, w.sets[0]
			return s, nil
		}
	}
	var parts []string
	if err := json.Unmarshal([]byte(raw), &parts); err != nil {
		return nil, err
	}
	s := newSet(raw, parts)
	w.sets = append([]*set{s}, w.sets[:min(len(w.sets), setsMax-1)]...)
	return s, nil
}

func newSet(raw string, parts []string) *set {
	parts = slices.Compact(slices.Sorted(slices.Values(parts)))
	s := &set{raw: raw, parts: parts, has: make(map[string]bool, len(parts))}
	for _, part := range parts {
		s.has[part] = true
	}
	return s
}
