package campaign

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/discovery"
	"github.com/vivarium-go/vivarium/embed/group"
)

// registerInstance registers an instance and updates it for a while. Once an Update has returned, no read
// may show an earlier state of this instance, also when another session has registered it again.
func registerInstance(ctx context.Context, n opener, s *embed.Session, q *Request, r *Reply) error {
	in := discovery.Instance{Name: serviceName, ID: groupIDs[q.Count], Address: q.Data, Registered: time.UnixMilli(1)}
	here := discovery.Register(q.opener(n), q.Path, in)
	defer here.Close()
	for in.Port++; ; in.Port++ {
		if err := here.Update(ctx, func(now *discovery.Instance) { now.Port = in.Port }); err != nil {
			return unless(ctx.Err(), err)
		}
		for range 4 {
			if r.Wrong = compareInstance(ctx, s, q.Path, in); r.Wrong != "" {
				return nil
			}
			time.Sleep(stretch(updateEvery / 4))
		}
	}
}

// updateEvery is the time between two updates of an instance.
const updateEvery = 400 * time.Millisecond

// compareInstance describes how an instance, if it is registered, is older than what its owner had
// announced before the call.
func compareInstance(ctx context.Context, s *embed.Session, base string, in discovery.Instance) string {
	at := in.Path(base)
	if _, err := s.Sync(ctx, at); err != nil {
		return ""
	}
	data, stat, err := s.Get(ctx, at)
	if err != nil {
		return ""
	}
	now, err := discovery.Decode(data)
	if err != nil || now.Address == in.Address && now.Port < in.Port {
		return fmt.Sprintf("%s has port %d at mzxid %d (%v), although %d had been registered", at, now.Port, stat.Mzxid, err, in.Port)
	}
	return ""
}

// A roster is who was below a znode, by a watch of its own.
type roster struct {
	s      *embed.Session
	path   string
	watch  *embed.Watch
	at     embed.Zxid // of the newest state
	states []state    // one for each transaction
	gap    bool       // some states are unknown
}

// A state is the children of a znode, by path.
type state map[string]embed.Znode

// open begins with the present state.
func (o *roster) open(ctx context.Context) (err error) {
	if o.watch, err = o.s.WatchWith(ctx, o.path, embed.WatchRecursive, embed.WatchOptions{Buffer: 1 << 10, Values: true}); err != nil {
		return err
	}
	now := make(state)
	for z, err := range o.s.Walk(ctx, o.path) {
		if unless(embed.ErrNoNode, err) != nil {
			return errors.Join(err, o.watch.Close())
		}
		if o.at = z.Zxid; err == nil && z.Path != o.path {
			now[z.Path] = z
		}
	}
	o.states = []state{now}
	return nil
}

// catchUp takes the events that wait. After a gap it begins anew.
func (o *roster) catchUp(ctx context.Context) error {
	since := o.at
	for {
		select {
		case e, ok := <-o.watch.Events():
			switch err := o.watch.Err(); {
			case ok && (e.Zxid > since || e.Zxid == o.at && len(o.states) > 1) && e.Path != o.path:
				o.note(e)
			case ok:
			case errors.Is(err, embed.ErrWatchGap), errors.Is(err, embed.ErrWatchOverflow):
				o.gap = true
				return o.open(ctx)
			default:
				return err
			}
		default:
			return nil
		}
	}
}

// note makes the change of an event.
func (o *roster) note(e embed.Event) {
	if e.Zxid > o.at {
		o.at, o.states = e.Zxid, append(o.states, maps.Clone(o.states[len(o.states)-1]))
	}
	now := o.states[len(o.states)-1]
	if stat, ok := e.Stat(); ok {
		now[e.Path] = embed.Znode{Path: e.Path, Data: e.Data(), Stat: stat}
	} else {
		delete(now, e.Path)
	}
}

// A story is what a loop of a recipe was told: one state after the other, as text.
type story struct {
	what string
	text func(state) string

	mu   sync.Mutex
	told []string // guarded by mu
}

func (y *story) tell(q *Request, text string) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.told = append(y.told, text)
	q.say(Reply{Data: "told of " + y.what}, true)
}

// compare describes how a story differs from what was, or returns nothing.
func (y *story) compare(o *roster) string {
	y.mu.Lock()
	defer y.mu.Unlock()
	told, states := y.told, o.states
	if o.gap {
		told, states = told[max(0, len(told)-1):], states[len(states)-1:]
	}
	var were []string
	for _, now := range states {
		were = append(were, y.text(now))
	}
	if why := strays(told, were); why != "" {
		return fmt.Sprintf("%s of %s: %s", y.what, o.path, why)
	}
	return ""
}

const (
	// rosterTries is how often a story and what was may differ at its end, each time rosterPause
	// after the last one. One of them may lag, and others come and go.
	rosterTries = 200
	rosterPause = 100 * time.Millisecond
)

// followRoster follows a group or a service for a while. What it is told must be what was, and at
// last the newest state.
func (m *Member) followRoster(ctx context.Context, s *embed.Session, q *Request, r *Reply) error {
	o := &roster{s: s, path: q.Path}
	if err := o.open(ctx); err != nil {
		return err
	}
	defer func() { _ = o.watch.Close() }()
	ctx, cancel := context.WithCancel(ctx)
	var loops sync.WaitGroup
	defer loops.Wait()
	defer cancel()
	follow := followGroup
	if strings.HasPrefix(inArea(q.Path), servicePath) {
		follow = followService
	}
	stories, err := follow(ctx, s, q, &loops)
	if err != nil {
		return err
	}
	select {
	case <-after(q.Length):
	case <-m.rest.Done():
	}
	for range rosterTries {
		r.Wrong = "" // what a try found counts only if it was the last; a connection may break before that
		if _, err := s.Sync(ctx, q.Path); err != nil {
			return err
		}
		if err := o.catchUp(ctx); err != nil {
			return err
		}
		for _, y := range stories {
			r.Wrong += y.compare(o)
		}
		if r.Wrong == "" {
			break
		}
		time.Sleep(stretch(rosterPause))
	}
	return nil
}

// followGroup follows the members of a group, and a share.
func followGroup(ctx context.Context, s *embed.Session, q *Request, loops *sync.WaitGroup) ([]*story, error) {
	g, err := group.Watch(ctx, s, q.Path, group.Options{Settle: stretch(q.TTL)})
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { _ = g.Close() })
	members := &story{what: "members", text: func(now state) string {
		var all []string
		for _, path := range slices.Sorted(maps.Keys(now)) {
			z := now[path]
			all = append(all, fmt.Sprintf("%s %d %d %s", z.Path, z.Stat.Czxid, z.Stat.Mzxid, z.Data))
		}
		return strings.Join(all, ", ")
	}}
	loops.Go(func() {
		for c, err := range g.Changes(ctx) {
			if err != nil {
				return
			}
			var all []string
			for _, one := range c.Members {
				all = append(all, fmt.Sprintf("%s %d %d %s", one.Path, one.Czxid, one.Mzxid, one.Data))
			}
			members.tell(q, strings.Join(all, ", "))
		}
	})
	shares := &story{what: "shares", text: func(now state) string { return fmt.Sprint(rosterTotal / float64(max(1, len(now)))) }}
	loops.Go(func() {
		for share, err := range g.Share(ctx, rosterTotal) {
			if err != nil {
				return
			}
			shares.tell(q, fmt.Sprint(share))
		}
	})
	return []*story{members, shares}, nil
}

// followService follows the instances of a service.
func followService(ctx context.Context, s *embed.Session, q *Request, loops *sync.WaitGroup) ([]*story, error) {
	v, err := discovery.Watch(ctx, s, areaOf(q.Path)+servicePath, serviceName)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { _ = v.Close() })
	text := func(list []discovery.Instance) string {
		var all []string
		for _, in := range list {
			all = append(all, fmt.Sprintf("%s %s %d", in.ID, in.Address, in.Port))
		}
		return strings.Join(all, ", ")
	}
	instances := &story{what: "instances", text: func(now state) string {
		var all []discovery.Instance
		for _, path := range slices.Sorted(maps.Keys(now)) {
			in, _ := discovery.Decode(now[path].Data)
			all = append(all, in)
		}
		return text(all)
	}}
	loops.Go(func() {
		for list, err := range v.Changes(ctx) {
			if err != nil {
				return
			}
			instances.tell(q, text(list))
		}
	})
	return []*story{instances}, nil
}
