package offline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"

	"github.com/vivarium-go/vivarium/engine/ask"
	"github.com/vivarium-go/vivarium/replication"
	"github.com/vivarium-go/vivarium/replication/transport"
	"github.com/vivarium-go/vivarium/session"
)

// askLost asks once more whether the lost voters still run, at all addresses that may be theirs. It
// returns why the ensemble may not be lost, or nil. A network that is cut hides who runs. Apart from
// that, a member is gone if nobody is at its address, or if somebody answers who is another one.
func askLost(ctx context.Context, r *Remains, o RecoverOptions) error {
	lost, others, err := r.places(ctx, o)
	if err != nil {
		return err
	}
	t := transport.New(transport.Options{Self: transport.Identity{Directory: r.id.Directory}, Network: o.Network, Logger: slog.New(slog.DiscardHandler)})
	defer t.Close()
	places, _ := ask.Resolve(ctx, o.Network, lost)
	more, _ := ask.Resolve(ctx, o.Network, others)
	for i, a := range ask.Each(ctx, t, slices.Concat(places, more), ask.Question{}) {
		if a.Err == nil {
			err = r.runs(&a.Got)
		} else if i < len(places) {
			err = somebody(ctx, o, a)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// runs returns why the ensemble is not lost by what a member says, or nil.
func (r *Remains) runs(a *ask.Answer) error {
	switch {
	case slices.Contains(a.Ancestors, r.Lineage):
		return fmt.Errorf("%s goes on from an earlier recovery, as lineage %v: start this member, and it joins as a new one", a.Who(), a.Lineage)
	case a.Member == 0 || a.Lineage != r.Lineage:
	case a.Leader != 0:
		return fmt.Errorf("%s answers and knows a leader, member %d: the ensemble is not lost, so start this member as it is", a.Who(), a.Leader)
	case a.Member == r.Member || slices.Contains(r.Voters(), a.Member):
		return fmt.Errorf("%s still runs: stop it first", a.Who())
	}
	return nil
}

// somebody returns an error if there is somebody at an address that did not answer: a member that
// stands still, or one that refuses this connection.
func somebody(ctx context.Context, o RecoverOptions, a ask.Result) error {
	ctx, cancel := context.WithTimeout(ctx, ask.Time)
	defer cancel()
	conn, err := o.Network.Dial(ctx, a.At.Target)
	if failed := new(net.OpError); errors.As(err, &failed) && failed.Op == "dial" {
		return nil
	}
	if err == nil {
		_ = conn.Close()
	}
	return fmt.Errorf("somebody is at %s, and may be a member that runs: %w: stop it; if the members use TLS, give -cert, -key and -ca; if it is no member, name with -gone-for-good whose address it was", a.At.Address, a.Err)
}

// mayRun reports whether a member is one of the lost voters that are not known to be gone for good.
func (r *Remains) mayRun(o RecoverOptions, id replication.MemberID) bool {
	return slices.Contains(r.Voters(), id) && !slices.Contains(o.Gone, id)
}

// places returns the addresses of the lost voters, at which nobody may be, and those of others, who
// may know more. It fails if they do not tell enough: if there are too few, if one is mistyped, or if
// that of a lost voter cannot be looked up. A name that nobody has tells that its member is not there.
func (r *Remains) places(ctx context.Context, o RecoverOptions) (lost, others []string, err error) {
	for _, id := range o.Gone {
		if !slices.Contains(r.Voters(), id) {
			return nil, nil, fmt.Errorf("member %d is said to be gone for good, and the other voters are members %s", id, replication.Listed(r.Voters()))
		}
	}
	for _, m := range r.Members {
		id := replication.MemberID(m.ID)
		switch {
		case m.Address == "":
			continue
		case !r.mayRun(o, id):
			others = append(others, m.Address)
			continue
		}
		lost = append(lost, m.Address)
		_, err := o.Network.Resolve(ctx, m.Address)
		if dns := new(net.DNSError); err != nil && !(errors.As(err, &dns) && dns.IsNotFound) {
			return nil, nil, fmt.Errorf("member %d cannot be asked whether it still runs: %w", id, err)
		}
	}
	given, err := r.given(ctx, o)
	return append(lost, given...), others, err
}

// given returns the addresses in Join, each once. There must be one for each lost voter of which the
// directory has none, unless it is gone for good.
func (r *Remains) given(ctx context.Context, o RecoverOptions) ([]string, error) {
	given := slices.Compact(slices.Sorted(slices.Values(o.Join)))
	for _, at := range given {
		if _, err := o.Network.Resolve(ctx, at); err != nil {
			return nil, fmt.Errorf("nobody can be asked at %s: %w", at, err)
		}
	}
	known := func(id replication.MemberID) bool {
		return !r.mayRun(o, id) || slices.ContainsFunc(r.Members, func(m session.Member) bool { return replication.MemberID(m.ID) == id && m.Address != "" })
	}
	if lost := slices.DeleteFunc(r.Voters(), known); len(lost) > len(given) {
		return nil, fmt.Errorf("nobody can be asked whether members %s still run, because the directory has no addresses of them: give one for each with -join, or name with -gone-for-good those whose machines or disks are gone", replication.Listed(lost))
	}
	return given, nil
}
