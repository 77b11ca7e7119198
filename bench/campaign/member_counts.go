package campaign

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/job"
	"github.com/vivarium-go/vivarium/embed/value"
)

// count adds one to a counter, or to a value by Update. The reply has the sum.
func count(ctx context.Context, s *embed.Session, q *Request, r *Reply) error {
	var sum int64
	var err error
	if q.Call == callAdd {
		sum, err = value.NewCounter(s, q.Path, embed.Text).Add(ctx, 1)
	} else {
		var v value.Versioned[int64]
		v, err = value.New(s, q.Path, value.JSON[int64]()).Update(ctx, func(now int64, _ bool) (int64, error) { return now + 1, nil })
		sum = v.Value
	}
	r.Data = strconv.FormatInt(sum, 10)
	return err
}

// swap replaces a value. The reply has the zxid and the data of the write that it was to replace.
func swap(ctx context.Context, s *embed.Session, q *Request, r *Reply) error {
	v := value.New(s, q.Path, value.Codec[string]{})
	old, err := v.Get(ctx)
	if err = unless(embed.ErrNoNode, err); err != nil {
		return err
	}
	time.Sleep(stretch(q.Length))
	r.Data = fmt.Sprintf("%d %s", old.Mzxid, old.Value)
	now, err := v.Swap(ctx, old, q.Data)
	r.Stat = now.Stat
	return err
}

// takeIDs takes ids of a sequence and reports each of them.
func takeIDs(ctx context.Context, n opener, q *Request) error {
	seq := value.NewSequence(n, q.Path, blockOfIDs)
	defer func() { _ = seq.Close() }()
	for range q.Count {
		id, err := seq.Next(ctx)
		if err != nil {
			return err
		}
		q.say(Reply{Deed: &deed{Kind: deedID, Path: q.Path, Key: strconv.FormatInt(id, 10)}}, true)
	}
	return nil
}

// takeNumber takes a worker number, uses what it guards, and releases it. Its clock is off. It
// reports times for which the number may be used, as parts of ids.
func (a *holders) takeNumber(ctx context.Context) error {
	begun := a.m.Now()
	clock := func() time.Time { return time.Now().Add(stretch(time.Duration(a.q.Count) * time.Millisecond)) }
	n, err := value.TakeNumber(ctx, a.s, a.q.Path, workers, value.NumberOptions{Skew: stretch(a.q.Hold.Delay), Clock: clock})
	if err != nil {
		return err
	}
	u := a.holder(kindWorker, begun, named{held: n, name: workerName(n.N()), guard: func() embed.Op { return value.Guard(n) }})
	id := func() {
		if now, err := n.Now(); err == nil {
			at := strconv.FormatInt(now.UnixMilli(), 10)
			a.q.say(Reply{Deed: &deed{Kind: deedTime, Path: a.q.Path + "/" + workerName(n.N()), Key: at, Token: n.Token()}}, true)
		}
	}
	id()
	u.use(a.q.Length, id)
	id()
	u.give()
	_ = n.Release()
	u.end()
	return nil
}

// reserve reserves a name, renews it now and then, and releases it or lets it run out.
func (a *holders) reserve(ctx context.Context) error {
	begun := a.m.Now()
	r, err := job.Reserve(ctx, a.s, a.q.Path+"/"+reservedName, a.q.Data, stretch(a.q.TTL))
	if err != nil {
		return err
	}
	u := a.holder(kindName, begun, named{held: reserved{r}, name: reservedName, guard: r.Guard, lax: true})
	for range a.q.Count {
		if !u.use(a.q.TTL/2, func() {}) {
			break
		}
		if err := r.Renew(ctx); errors.Is(err, embed.ErrNotHeld) {
			break
		}
	}
	if u.use(a.q.Length, func() {}) {
		u.give()
		_ = r.Release()
	}
	u.end()
	return nil
}

// reservedName is the one name that is reserved in each area.
const reservedName = "n"

// reserved is a Reservation with a Context.
type reserved struct{ *job.Reservation }

func (r reserved) Context() context.Context { return endedBy(r.Err()) }
