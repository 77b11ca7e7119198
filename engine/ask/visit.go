package ask

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"time"

	"github.com/vivarium-go/vivarium/engine/outbox"
	"github.com/vivarium-go/vivarium/internal/certs"
	"github.com/vivarium-go/vivarium/replication/transport"
	"github.com/vivarium-go/vivarium/session"
)

const (
	// retryAfter is how long a visitor waits before it asks again.
	retryAfter = time.Second
	// partTries is how often a part of a backup is asked for.
	partTries = 5
)

// A visitor asks the members of an ensemble without being one of them. It may ask what a node asks
// that wants to join, so it needs what such a node needs: with TLS a member's certificate.
type visitor struct {
	seeds     []string
	network   transport.Network
	transport *transport.Transport
}

// A Visit says how to ask an ensemble.
type Visit struct {
	Seeds    []string
	Ensemble string
	TLS      *certs.Store
	PlainToo bool
	Tick     time.Duration
	Levels   transport.Levels
	Logger   *slog.Logger
}

func (o Visit) begin() *visitor {
	v := &visitor{seeds: o.Seeds, network: transport.TCP("", o.TLS, o.PlainToo)}
	var run [8]byte
	rand.Read(run[:]) // never fails
	v.transport = transport.New(transport.Options{
		Self:    transport.Identity{Run: binary.BigEndian.Uint64(run[:]), Tick: o.Tick, Levels: o.Levels},
		Network: v.network, Logger: o.Logger,
	})
	return v
}

// Members asks the ensemble for its members. The error is ErrUnavailable if no leader answers:
// then the list is that of a member, and says of nobody whether it answers. It is also
// ErrUnavailable if no member answers.
func (o Visit) Members(ctx context.Context) ([]Member, error) {
	v := o.begin()
	defer v.transport.Close()
	a, err := v.ask(ctx, Question{List: true})
	return a.List, err
}

// Remove asks the leader to take a member out of the ensemble, and waits as RemoveMember does.
func (o Visit) Remove(ctx context.Context, m MemberID) error {
	v := o.begin()
	defer v.transport.Close()
	asked, what := false, RemovalOf(m)
	for {
		a, err := v.ask(ctx, Question{List: true})
		at := slices.IndexFunc(a.List, func(rec Member) bool { return MemberID(rec.ID) == m })
		switch {
		case err != nil && !asked:
			return err
		case err != nil:
			// The removal may go on, and so do the questions.
		case a.Ensemble != o.Ensemble:
			return fmt.Errorf("%s is of the ensemble %q, the config says %q: check Join and Ensemble", a.Who(), a.Ensemble, o.Ensemble)
		case at < 0 && asked, at >= 0 && a.List[at].OutOf() == a.Shards:
			return nil
		case at < 0:
			return fmt.Errorf("%w: %d", session.ErrNotMember, m)
		case a.List[at].Wish == session.Out:
			asked = true
		default:
			if err := v.askRemoval(ctx, m, a.Lineage); err != nil {
				return Refused(err, asked, what)
			}
			asked = true // its answer may be lost
		}
		select {
		case <-time.After(retryAfter):
		case <-ctx.Done():
			if asked {
				return Unsure(what, ctx.Err())
			}
			return outbox.Lacking(ctx, ctx.Err())
		}
	}
}

// askRemoval asks once, and returns the leader's refusal. Nil does not say that the removal is
// recorded.
func (v *visitor) askRemoval(ctx context.Context, m MemberID, of session.Lineage) error {
	a, err := v.ask(ctx, Question{Remove: m, Lineage: of})
	if err != nil {
		return nil // nobody knows what has become of it
	}
	return a.Refusal()
}

// ask asks one seed after the other, until the leader answers. If none does, the error is
// ErrUnavailable, and the answer is that of a member, if one answers at all.
func (v *visitor) ask(ctx context.Context, q Question) (last Answer, err error) {
	var errs []error
	for _, name := range v.seeds {
		targets, err := v.network.Resolve(ctx, name)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		}
		for _, to := range targets {
			a, err := v.askLeader(ctx, to, q)
			if err == nil {
				return a, nil
			}
			if a.Member != 0 {
				last = a
			}
			errs = append(errs, fmt.Errorf("%s: %w", to.Address, err))
		}
	}
	return last, fmt.Errorf("%w: %w", outbox.ErrUnavailable, errors.Join(errs...))
}

// askLeader asks whoever is at a target, and then the leader that it names. After an error the
// answer is the last one that it has.
func (v *visitor) askLeader(ctx context.Context, to transport.Target, q Question) (last Answer, err error) {
	for range HopsMax {
		a, err := v.askWhole(ctx, to, q)
		switch {
		case err != nil:
			return last, err
		case a.Member == 0:
			return last, errors.New("the node there has yet to join")
		case a.Leader == a.Member:
			return a, nil
		case a.Leader == 0 || a.Members[a.Leader] == "":
			return a, fmt.Errorf("member %d knows of no leader", a.Member)
		}
		last, to = a, transport.Target{Address: a.Members[a.Leader]}
	}
	return last, errors.New("the leadership changes too often")
}

// askWhole asks at one place, until all parts of the list are there.
func (v *visitor) askWhole(ctx context.Context, to transport.Target, q Question) (whole Answer, err error) {
	for {
		bound, cancel := context.WithTimeout(ctx, Time)
		a, err := Ask(bound, v.transport, to, q)
		cancel()
		switch {
		case err != nil:
			return Answer{}, err
		case q.After != 0 && (a.Directory != whole.Directory || a.Lineage != whole.Lineage):
			return Answer{}, fmt.Errorf("member %d was there, and now member %d is", whole.Member, a.Member)
		}
		a.List = append(whole.List, a.List...)
		if whole = a; !a.More || len(a.List) == 0 {
			return whole, nil
		}
		q.After = a.List[len(a.List)-1].ID
	}
}

// Backup has a member make a backup, and writes it to w. It asks one that does not lead, if one
// answers. Only nil says that w has a backup.
func (o Visit) Backup(ctx context.Context, w io.Writer) error {
	v := o.begin()
	defer v.transport.Close()
	to, err := v.follower(ctx, o.Ensemble)
	if err != nil {
		return err
	}
	wanted := BackupAsk{}
	rand.Read(wanted.ID[:]) // never fails
	for {
		part, err := v.askPart(ctx, to, wanted)
		if err != nil {
			return err
		}
		if _, err := w.Write(part.Data); err != nil {
			return err
		}
		if part.Last {
			return nil
		}
		wanted.Part++
	}
}

// askPart asks for a part until there is an answer.
func (v *visitor) askPart(ctx context.Context, to transport.Target, part BackupAsk) (*BackupPart, error) {
	for try := 1; ; try++ {
		a, err := Ask(ctx, v.transport, to, Question{Backup: &part})
		switch {
		case err == nil && a.Refused != "":
			return nil, fmt.Errorf("%s makes no backup: %s", a.Who(), a.Refused)
		case err == nil && a.Backup == nil:
			return nil, fmt.Errorf("the build of %s gives no backups: start a newer one there", a.Who())
		case err == nil:
			return a.Backup, nil
		case try == partTries || ctx.Err() != nil:
			return nil, fmt.Errorf("%w: %w", outbox.ErrUnavailable, err)
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// follower returns a member of the ensemble that answers, and that does not lead if there is one.
func (v *visitor) follower(ctx context.Context, ensemble string) (best transport.Target, err error) {
	var errs []error
	for _, name := range v.seeds {
		targets, err := v.network.Resolve(ctx, name)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		}
		for _, to := range targets {
			bound, cancel := context.WithTimeout(ctx, Time)
			a, err := Ask(bound, v.transport, to, Question{})
			cancel()
			switch {
			case err != nil:
				errs = append(errs, fmt.Errorf("%s: %w", to.Address, err))
			case a.Member == 0:
				errs = append(errs, fmt.Errorf("%s: the node there has yet to join", to.Address))
			case a.Ensemble != ensemble:
				return best, fmt.Errorf("%s is of the ensemble %q, the config says %q: check Join and Ensemble", a.Who(), a.Ensemble, ensemble)
			case a.Leader != a.Member:
				return to, nil
			case best == transport.Target{}:
				best = to
			}
		}
	}
	if best != (transport.Target{}) {
		return best, nil
	}
	return best, fmt.Errorf("%w: %w", outbox.ErrUnavailable, errors.Join(errs...))
}
