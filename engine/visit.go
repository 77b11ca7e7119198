package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/vivarium-go/vivarium/engine/replica"
	"github.com/vivarium-go/vivarium/replication/transport"
	"github.com/vivarium-go/vivarium/session"
)

// A visitor asks the members of an ensemble without being one of them. It may ask what a node asks
// that wants to join, so it needs what such a node needs: with TLS a member's certificate.
type visitor struct {
	seeds     []string
	network   transport.Network
	transport *transport.Transport
}

func newVisitor(cfg Config) *visitor {
	v := &visitor{seeds: cfg.seeds(), network: transport.TCP("", cfg.TLS, cfg.PlainToo)}
	v.transport = transport.New(transport.Options{
		Self:    transport.Identity{Run: runID(), Tick: cfg.Tick, Levels: transport.Levels{Min: LevelMin, Max: LevelMax}},
		Network: v.network, Logger: cfg.Logger,
	})
	return v
}

// AskMembers asks the ensemble for its members. The error is ErrUnavailable if no leader answers:
// then the list is that of a member, and says of nobody whether it answers. It is also
// ErrUnavailable if no member answers.
func AskMembers(ctx context.Context, cfg Config) ([]Member, error) {
	v := newVisitor(cfg)
	defer v.transport.Close()
	a, err := v.ask(ctx, question{List: true})
	return a.List, err
}

// AskRemoval asks the leader to take a member out of the ensemble, and waits as RemoveMember does.
func AskRemoval(ctx context.Context, cfg Config, m MemberID) error {
	v := newVisitor(cfg)
	defer v.transport.Close()
	asked, what := false, removalOf(m)
	for {
		a, err := v.ask(ctx, question{List: true})
		at := slices.IndexFunc(a.List, func(rec Member) bool { return MemberID(rec.ID) == m })
		switch {
		case err != nil && !asked:
			return err
		case err != nil:
			// The removal may go on, and so do the questions.
		case a.Ensemble != cfg.Ensemble:
			return fmt.Errorf("%s is of the ensemble %q, the config says %q: check Join and Ensemble", a.who(), a.Ensemble, cfg.Ensemble)
		case at < 0 && asked, at >= 0 && a.List[at].OutOf() == a.Shards:
			return nil
		case at < 0:
			return fmt.Errorf("%w: %d", session.ErrNotMember, m)
		case a.List[at].Wish == session.Out:
			asked = true
		default:
			if err := v.askRemoval(ctx, m, a.Lineage); err != nil {
				return refused(err, asked, what)
			}
			asked = true // its answer may be lost
		}
		select {
		case <-time.After(replica.RetryAfter):
		case <-ctx.Done():
			if asked {
				return unsure(what, ctx.Err())
			}
			return unavailable(ctx, ctx.Err())
		}
	}
}

// askRemoval asks once, and returns the leader's refusal. Nil does not say that the removal is
// recorded.
func (v *visitor) askRemoval(ctx context.Context, m MemberID, of session.Lineage) error {
	a, err := v.ask(ctx, question{Remove: m, Lineage: of})
	if err != nil {
		return nil // nobody knows what has become of it
	}
	return a.refusal()
}

// ask asks one seed after the other, until the leader answers. If none does, the error is
// ErrUnavailable, and the answer is that of a member, if one answers at all.
func (v *visitor) ask(ctx context.Context, q question) (last answer, err error) {
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
	return last, fmt.Errorf("%w: %w", ErrUnavailable, errors.Join(errs...))
}

// askLeader asks whoever is at a target, and then the leader that it names. After an error the
// answer is the last one that it has.
func (v *visitor) askLeader(ctx context.Context, to transport.Target, q question) (last answer, err error) {
	for range hopsMax {
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
func (v *visitor) askWhole(ctx context.Context, to transport.Target, q question) (whole answer, err error) {
	for {
		bound, cancel := context.WithTimeout(ctx, askTime)
		a, err := ask(bound, v.transport, to, q)
		cancel()
		switch {
		case err != nil:
			return answer{}, err
		case q.After != 0 && (a.Directory != whole.Directory || a.Lineage != whole.Lineage):
			return answer{}, fmt.Errorf("member %d was there, and now member %d is", whole.Member, a.Member)
		}
		a.List = append(whole.List, a.List...)
		if whole = a; !a.More || len(a.List) == 0 {
			return whole, nil
		}
		q.After = a.List[len(a.List)-1].ID
	}
}
