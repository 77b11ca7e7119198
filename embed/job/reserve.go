package job

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/claim"
	"github.com/vivarium-go/vivarium/embed/lock"
)

// ErrReserved says that another holder has reserved the name. The text says which.
var ErrReserved = errors.New("it is reserved")

// A Reservation is a name that is reserved for some time, also without a session. It is for a host
// that keeps a job while its process restarts, or for a pause between two runs. It has no queue.
// What should end with its process is a lock instead.
//
// The time counts on the ensemble, from the Reserve or from the last Renew, and no wall clock
// decides. The name stays reserved for at least that time. It is free up to
// embed.Config.ContainerCheckInterval later, and the time begins anew when the leader of the
// ensemble changes.
//
// Its methods may be called by any number of goroutines. The zero Reservation has ended with
// embed.ErrNotHeld.
type Reservation struct {
	// Immutable. The session is nil in the zero Reservation.
	session *embed.Session
	path    string
	holder  string
	time    time.Duration
	czxid   embed.Zxid

	now atomic.Pointer[standing]
}

// A standing is what is known of a Reservation. It is immutable.
type standing struct {
	mzxid embed.Zxid // of the newest write that is known
	until time.Time  // by the monotonic clock: nobody else has the name before
	ended error
}

// change replaces what is known, and returns the new one.
func (r *Reservation) change(fn func(*standing)) *standing {
	for {
		old := r.now.Load()
		next := *old
		fn(&next)
		if r.now.CompareAndSwap(old, &next) {
			return &next
		}
	}
}

// Reserve reserves the name that is a path, for a holder and a time in whole milliseconds. If the
// same holder has reserved it already, it is reserved again from now on, and earlier Reservations
// have ended. So holders need different names. Missing parents are created as containers.
//
// Errors: ErrReserved if another holder has reserved it, or if it has a znode that is there to stay,
// which Reserve never replaces; embed.ErrInvalidArgument if the holder is
// empty; embed.ErrInvalidTTL for the time; embed.ErrInvalidPath, for "/" too, which no session can
// delete; embed.ErrUnavailable; those of embed.Session.Create. After embed.ErrUnknownOutcome it may be
// reserved: Reserve again, or wait.
func Reserve(
	ctx context.Context, s *embed.Session, path, holder string, d time.Duration,
) (*Reservation, error) {
	r := &Reservation{session: s, path: path, holder: holder, time: d}
	r.now.Store(new(standing))
	if holder == "" {
		return nil, r.wrap("reserve", fmt.Errorf("%w: the holder is empty", embed.ErrInvalidArgument))
	}
	if path == "/" {
		return nil, r.wrap("reserve", fmt.Errorf("%w: no session can delete /, so it cannot be a name",
			embed.ErrInvalidPath))
	}
	if err := r.reserve(ctx); err != nil {
		return nil, r.wrap("reserve", err)
	}
	return r, nil
}

func (r *Reservation) reserve(ctx context.Context) error {
	var kept embed.Zxid // what has the holder's name, but is no reservation, or was replaced meanwhile
	for synced := false; ; {
		begun := time.Now()
		data, stat, err := r.session.Get(ctx, r.path)
		switch {
		case errors.Is(err, embed.ErrNoNode):
			stat, err = r.create(ctx)
		case err != nil:
		case string(data) == r.holder && stat.Mzxid != kept:
			kept = stat.Mzxid
			stat, err = r.replace(ctx, kept)
		case synced:
			return fmt.Errorf("%w by %q", ErrReserved, data)
		default: // its holder may have released it, which this node does not show yet
			if _, err := r.session.Sync(ctx, r.path); err != nil {
				return err
			}
			synced = true
			continue
		}
		if err == nil {
			r.czxid = stat.Czxid
			r.lasts(stat.Mzxid, begun)
			return nil
		}
		if !changed(err) {
			return err
		}
	}
}

// changed reports whether somebody else has written the name meanwhile. This node shows it by now.
func changed(err error) bool {
	return errors.Is(err, embed.ErrNodeExists) || errors.Is(err, embed.ErrNoNode) ||
		errors.Is(err, embed.ErrBadVersion)
}

func (r *Reservation) options() embed.CreateOptions {
	return embed.CreateOptions{Mode: embed.TTL, TTL: r.time}
}

func (r *Reservation) create(ctx context.Context) (embed.Stat, error) {
	o := r.options()
	o.Parents = true
	_, stat, err := r.session.CreateWith(ctx, r.path, []byte(r.holder), o)
	return stat, err
}

// replace creates the znode anew, because a znode keeps the TTL with which it was created. It
// replaces TTL znodes only.
func (r *Reservation) replace(ctx context.Context, mzxid embed.Zxid) (embed.Stat, error) {
	results, err := r.session.Multi(ctx, claim.OpCheckLost(r.path, mzxid),
		embed.OpDelete(r.path, embed.AnyVersion),
		embed.OpCreateWith(r.path, []byte(r.holder), r.options()))
	if err != nil {
		return embed.Stat{}, err
	}
	return results[2].Stat, nil
}

// lasts records that the name is reserved anew, by a write that was sent after begun.
func (r *Reservation) lasts(mzxid embed.Zxid, begun time.Time) {
	r.change(func(n *standing) {
		if mzxid > n.mzxid {
			n.mzxid, n.until = mzxid, begun.Add(r.time)
		}
	})
}

// Renew lets the time begin anew. It does so even if the time has run out, as long as nobody else
// has reserved the name meanwhile.
//
// Errors: embed.ErrNotHeld if the Reservation is lost, embed.ErrReleased, and those of
// embed.Session.Set.
func (r *Reservation) Renew(ctx context.Context) error {
	if r.session == nil {
		return embed.ErrNotHeld
	}
	for {
		begun := time.Now()
		stat, err := r.look(ctx)
		if err != nil {
			return r.wrap("renew", err)
		}
		results, err := r.session.Multi(ctx, embed.OpCheckMzxid(r.path, stat.Mzxid),
			embed.OpSet(r.path, []byte(r.holder), embed.AnyVersion))
		if err == nil {
			r.lasts(results[1].Stat.Mzxid, begun)
			return nil
		}
		if !changed(err) {
			return r.wrap("renew", err)
		}
	}
}

// look returns the Stat of the znode, as long as the Reservation is not lost.
func (r *Reservation) look(ctx context.Context) (embed.Stat, error) {
	if ended := r.now.Load().ended; ended != nil {
		return embed.Stat{}, ended
	}
	stat, ok, err := r.session.Exists(ctx, r.path)
	if err == nil && (!ok || stat.Czxid != r.czxid) {
		err = r.end(embed.ErrNotHeld)
	}
	return stat, err
}

// end ends the Reservation, and returns why it has ended.
func (r *Reservation) end(why error) error {
	return r.change(func(n *standing) {
		if n.ended == nil {
			n.ended = why
		}
	}).ended
}

// Err compares the clock and returns why the Reservation ended, or nil while nobody else can have
// reserved the name: embed.ErrReleased, or embed.ErrNotHeld if its time has run out, or if Renew
// has found that it is lost. It does not notice that somebody has deleted the znode, nor that the
// same holder has reserved the name again.
//
// The clock is the monotonic one of this machine. Time in which it stood still is not counted;
// Token and Guard are safe from that.
func (r *Reservation) Err() error {
	if r.session == nil {
		return embed.ErrNotHeld
	}
	now := r.now.Load()
	if now.ended == nil && !time.Now().Before(now.until) {
		return embed.ErrNotHeld
	}
	return now.ended
}

// Token returns the fencing token. It grows with every Reserve of the name, see lock.Token.
func (r *Reservation) Token() lock.Token { return lock.Token{Zxid: r.czxid} }

// Guard lets a Multi be applied only while the name is reserved by the last Reserve or Renew of
// this Reservation that has returned. A Multi beside a Renew may be refused: embed.ErrBadVersion.
// So it is if the Reservation is lost, or embed.ErrNoNode. The Guard of a zero Reservation is
// refused with embed.ErrNotHeld.
func (r *Reservation) Guard() embed.Op {
	if r.session == nil {
		return lock.Guard(nil)
	}
	return embed.OpCheckMzxid(r.path, r.now.Load().mzxid)
}

// Release gives the name up. It is idempotent and frees nothing but this Reservation. It waits for
// at most embed.Config.RequestTimeout. After an error the Reservation has ended all the same, and
// the name is free when its time has run out, or after another Release.
func (r *Reservation) Release() error {
	if r.session == nil || errors.Is(r.end(embed.ErrReleased), embed.ErrNotHeld) {
		return nil
	}
	ctx := context.Background()
	for {
		stat, ok, err := r.session.Exists(ctx, r.path)
		if err != nil {
			return r.wrap("release", err)
		}
		if !ok || stat.Czxid != r.czxid {
			return nil
		}
		_, err = r.session.Multi(ctx, embed.OpCheckMzxid(r.path, stat.Mzxid),
			embed.OpDelete(r.path, embed.AnyVersion))
		if err == nil || !changed(err) {
			return r.wrap("release", err)
		}
	}
}

func (r *Reservation) wrap(op string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %s: %w", op, r.path, err)
}
