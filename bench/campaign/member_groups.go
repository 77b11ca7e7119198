package campaign

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/barrier"
	"github.com/vivarium-go/vivarium/embed/discovery"
	"github.com/vivarium-go/vivarium/embed/group"
	"github.com/vivarium-go/vivarium/embed/lock"
	"github.com/vivarium-go/vivarium/embed/value"
)

// opener opens the sessions of a recipe with the timeout of the request.
func (q *Request) opener(n opener) embed.Opener {
	return embed.OpenerWith(n, embed.SessionOptions{Timeout: stretch(q.Timeout)})
}

// join announces a member for a while. Each time that it is present counts as a hold of its znode.
func (a *holders) join(ctx context.Context, n opener) error {
	begun := a.m.Now()
	id := groupIDs[a.q.Count]
	here := group.Join(a.q.opener(n), a.q.Path, id, []byte(a.q.Data), group.Options{Linger: stretch(a.q.TTL)})
	defer here.Close()
	end := begun + a.q.Length
	for status, err := range here.Changes(ctx) {
		if err != nil {
			return err
		}
		if !status.Present {
			continue
		}
		u := a.holder(kindHere, begun, named{held: present{here, lock.Token{Zxid: status.Czxid, Local: uint64(a.count.Load()) + 1}}, name: id, lax: true, long: true})
		held := u.use(end-u.told.From, func() {})
		u.give()
		if held {
			_ = here.Close()
			u.end()
			return nil
		}
		u.end()
		a.seen("announcement lost")
	}
	return nil
}

// present is the presence of an announcement's znode, until its session is suspended at least. One
// znode may be present several times: token.Local counts on.
type present struct {
	here  *group.Announcement
	token lock.Token
}

func (p present) Token() lock.Token { return p.token }

func (p present) Err() error {
	now := p.here.Status()
	if now.Present && now.Czxid == p.token.Zxid {
		return nil
	}
	return cmp.Or(now.Err, embed.ErrNotHeld)
}

func (p present) Context() context.Context { return endedBy(p.Err()) }

// endedBy returns a context that has ended if there is an error.
func endedBy(err error) context.Context {
	if err == nil {
		return context.Background()
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(err)
	return ctx
}

// follow is a member of a rollout for a while. The use of each value counts as a hold, whose token
// is the value's.
func (a *holders) follow(ctx context.Context, n opener) error {
	begun := a.m.Now()
	stop := func() {}
	defer func() { stop() }()
	return group.Follow(ctx, a.q.opener(n), a.q.Path, a.q.Data, value.JSON[string](), func(ctx context.Context, v value.Versioned[string]) error {
		stop()
		using, end := context.WithCancel(ctx)
		over := make(chan struct{})
		stop = func() {
			end()
			<-over
		}
		token := lock.Token{Zxid: v.Mzxid, Local: uint64(a.count.Load()) + 1}
		u := a.holder(kindValue, begun, named{held: running{ctx: ctx, token: token}, name: a.q.Data, lax: true, long: true})
		u.heard, u.heed = using.Done(), "value applied and replaced"
		go func() {
			defer close(over)
			u.use(2*observeMax, func() {})
			u.give()
		}()
		return nil
	})
}

// rollOut writes a value and waits until all have applied it.
func rollOut(ctx context.Context, s *embed.Session, q *Request, r *Reply) error {
	v, err := value.New(s, q.Path, value.JSON[string]()).Set(ctx, q.Data)
	if err != nil {
		return err
	}
	r.Zxid = v.Mzxid
	_, err = group.AwaitApplied(ctx, s, q.Path, v.Mzxid)
	return err
}

// meet enters a double barrier and leaves it, or uses a gate or a countdown. The reply says when it
// passed.
func (m *Member) meet(ctx context.Context, s *embed.Session, q *Request, r *Reply) error {
	gate, countdown := barrier.NewGate(s, q.Path), barrier.NewCountdown(s, q.Path, len(countdownNames))
	switch q.Call {
	case callShut:
		return gate.Shut(ctx)
	case callUnlock:
		return gate.Open(ctx)
	case callGate:
		if _, err := s.Sync(ctx, q.Path); err != nil { // otherwise it may pass before it was shut
			return err
		}
		return gate.Wait(ctx)
	case callDone:
		return countdown.Done(ctx, q.Data)
	case callWait:
		err := countdown.Wait(ctx)
		if err == nil {
			r.At = m.Now()
		}
		return err
	}
	pass, err := barrier.Enter(ctx, s, q.Path, enterers)
	if err != nil {
		return err
	}
	r.At = m.Now()
	_ = pass.Leave(ctx)
	return nil
}

// gather announces a member in every way, waits until it sees exactly as many as there are, and
// leaves with them.
func (m *Member) gather(ctx context.Context, n opener, s *embed.Session, q *Request) error {
	here := group.Join(n, q.Path, q.Data, nil, group.Options{})
	defer here.Close()
	service := areaOf(q.Path) + servicePath
	instance := discovery.Register(n, service, discovery.Instance{Name: "all", ID: q.Data, Registered: time.UnixMilli(1)})
	defer instance.Close()
	members, err := group.Watch(ctx, s, q.Path, group.Options{})
	if err != nil {
		return err
	}
	defer members.Close()
	now, err := members.Await(ctx, func(now []group.Member) bool { return len(now) == q.Count })
	if err != nil {
		return fmt.Errorf("%w: %d members of the group: %v", embed.ErrUnavailable, len(now), now)
	}
	services, err := discovery.Watch(ctx, s, service, "all")
	if err != nil {
		return err
	}
	defer services.Close()
	for now, err := range services.Changes(ctx) {
		if err != nil {
			return fmt.Errorf("%w: %d instances: %v", embed.ErrUnavailable, len(services.Instances()), services.Instances())
		}
		if len(now) == q.Count && slices.ContainsFunc(now, func(i discovery.Instance) bool { return i.ID == q.Data }) {
			break
		}
	}
	// On a busy machine a member may lose its session once more, and announce itself again.
	var share float64
	for share, err = range members.Share(ctx, rosterTotal) {
		if err != nil {
			return fmt.Errorf("%w: a share of %v for %d members", embed.ErrUnavailable, share, q.Count)
		}
		if share == rosterTotal/float64(q.Count) {
			break
		}
	}
	done := barrier.NewCountdown(s, q.Path+"-done", q.Count)
	if err := errors.Join(done.Done(ctx, q.Data), done.Wait(ctx)); err != nil {
		return err
	}
	pass, err := barrier.Enter(ctx, s, q.Path+"-all", q.Count)
	if err != nil {
		return err
	}
	if err := pass.Leave(ctx); err != nil {
		return err
	}
	if err := errors.Join(here.Err(), instance.Err()); err != nil {
		return err
	}
	_, _ = here.Close(), instance.Close()
	_, err = members.Await(ctx, func(now []group.Member) bool { return len(now) == 0 })
	if err != nil {
		return err
	}
	for now, err := range services.Changes(ctx) {
		if err != nil || len(now) == 0 {
			return err
		}
	}
	return nil
}
