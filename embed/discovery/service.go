package discovery

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/value"
	"github.com/vivarium-go/vivarium/embed/view"
)

// An instance with errorsMax errors within errorTime is passed over until errorTime has passed
// since the first of them. These are the defaults of Curator's DownInstancePolicy.
const (
	errorsMax = 2
	errorTime = 30 * time.Second
)

// A Service shows the instances of one service. All methods may be called by any number of
// goroutines. They go on to show the last state after the Service has ended.
type Service struct {
	path string
	view *view.View[Instance]
	// notes has the errors of the newest errorTime by the ids of their instances. Its capacity is
	// 1: a method takes the map and puts it back.
	notes chan map[string]note
}

// A note is how many errors an instance had since a time.
type note struct {
	errors int
	since  time.Time
}

// Watch returns the Service of a name. The znodes need not exist; they may also come and go later.
// ctx bounds the call, not the Service. It lasts until Close or until the session ends. One session
// should have one Service of a name, which all share.
//
// Errors: those of view.Open, and embed.ErrInvalidArgument for an empty name or one with a slash.
func Watch(ctx context.Context, s *embed.Session, base, name string) (*Service, error) {
	path := strings.TrimSuffix(base, "/") + "/" + name
	var err error
	switch {
	case base == "":
		err = fmt.Errorf("%w: the base path is empty", embed.ErrInvalidPath)
	case name == "" || strings.Contains(name, "/"):
		err = fmt.Errorf("%w: the service's name is %q", embed.ErrInvalidArgument, name)
	}
	v := &Service{path: path, notes: make(chan map[string]note, 1)}
	v.notes <- make(map[string]note)
	if err == nil {
		codec := value.Codec[Instance]{Decode: Decode}
		v.view, err = view.Open(ctx, s, path, view.Options[Instance]{Codec: codec, Depth: 1})
	}
	if err != nil {
		return nil, fmt.Errorf("watch service %s: %w", path, err)
	}
	return v, nil
}

// Names returns the sorted names of the services that have instances, or had some until a short
// time ago, as this node's replica knows them. Errors are those of embed.Session.Children; a base
// that does not exist has no services.
func Names(ctx context.Context, s *embed.Session, base string) ([]string, error) {
	names, _, err := s.Children(ctx, base)
	if errors.Is(err, embed.ErrNoNode) {
		return nil, nil
	}
	return names, err
}

// Instances returns all instances, also Disabled ones, sorted by the names of their znodes, which
// are their ids as a rule. All are of one zxid. One whose newest data does not decode is as it was
// before, or missing; see Unreadable. It never waits. What the instances refer to is shared: do not
// change it.
func (v *Service) Instances() []Instance {
	var list []Instance
	for _, e := range v.view.All() {
		if e.Value.Name != "" {
			list = append(list, e.Value)
		}
	}
	return list
}

// Unreadable returns why the newest data of instances does not decode, by the paths of their
// znodes.
func (v *Service) Unreadable() map[string]error {
	list := make(map[string]error)
	for path, e := range v.view.All() {
		if e.Err != nil {
			list[path] = e.Err
		}
	}
	return list
}

// Pick returns the instance that a Picker chooses among those that are enabled and not down; see
// Note. It returns false if there is none. It costs neither a commit nor a wait.
func (v *Service) Pick(p Picker) (Instance, bool) {
	notes := <-v.notes
	now := time.Now()
	var list []Instance
	for _, in := range v.Instances() {
		n := notes[in.ID]
		down := n.errors >= errorsMax && now.Sub(n.since) < errorTime
		if !in.Disabled && !down {
			list = append(list, in)
		}
	}
	v.notes <- notes
	if len(list) == 0 {
		return Instance{}, false
	}
	return p(list), true
}

// Note records that a call of an instance has failed. An instance that failed twice within 30
// seconds is passed over by this Service until they have passed. Notes are not shared with other
// processes. They are about the id: a change of the payload does not forgive them. An id that is
// not registered is not noted.
func (v *Service) Note(id string) {
	known := false
	for _, in := range v.Instances() {
		known = known || in.ID == id
	}
	if !known {
		return
	}
	notes := <-v.notes
	defer func() { v.notes <- notes }()
	now := time.Now()
	for id, n := range notes { // so it has no more than the instances of the newest errorTime
		if now.Sub(n.since) >= errorTime {
			delete(notes, id)
		}
	}
	n, ok := notes[id]
	if !ok {
		n.since = now
	}
	n.errors++
	notes[id] = n
}

// Changes yields the present Instances, and then those after each change. A slow loop gets several
// changes in one, but never misses the newest. When ctx or the Service ends, Changes yields that
// error and stops. Another range over the result begins anew.
func (v *Service) Changes(ctx context.Context) iter.Seq2[[]Instance, error] {
	return func(yield func([]Instance, error) bool) {
		for {
			zxid := v.view.Zxid()
			if !yield(v.Instances(), nil) {
				return
			}
			for _, err := range v.view.Changes(ctx, zxid) {
				if _, missed := errors.AsType[*embed.GapError](err); err != nil && !missed {
					yield(nil, fmt.Errorf("instances of %s: %w", v.path, err))
					return
				}
				break
			}
		}
	}
}

// Done returns a channel that is closed when the Service has ended.
func (v *Service) Done() <-chan struct{} { return v.view.Done() }

// Err returns why the Service ended: view.ErrClosed or the error of the session. It is nil while
// the Service lasts.
func (v *Service) Err() error { return v.view.Err() }

// Close ends the Service. It is idempotent and always returns nil.
func (v *Service) Close() error { return v.view.Close() }
