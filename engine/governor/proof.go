package governor

import (
	"context"
	"time"

	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/engine/replica"
)

// Prove has the members of a shard that this node leads store an entry, and returns who has. It waits
// for those who answer, but not beyond ctx or a longest election. A heartbeat is no proof: whoever
// answers it may have a disk that hangs. So everything that counts on a member for a quorum asks for
// this first: promotions, removals, and handing over.
//
// A member has one log for all shards, so what it stores of one speaks for all. It returns nil if the
// entry was not committed, or if ctx ended before all had their time.
func (o *Options) Prove(ctx context.Context, id ShardID, members []MemberID) map[MemberID]bool {
	bounded, cancel := context.WithTimeout(ctx, o.Election)
	defer cancel()
	host := o.Host()
	before := host.Committed(id) // nothing above it has been acknowledged
	for _, m := range members {
		before = max(before, o.Transport.Pulse(uint64(m), int(id)).Index)
	}
	if _, err := host.Propose(id, command.EncodeReap(time.Now().UnixMilli(), nil)); err != nil { // it changes nothing
		return nil
	}
	stored := make(map[MemberID]bool)
	for {
		waits := host.Committed(id) <= before
		for _, m := range members {
			p := o.Transport.Pulse(uint64(m), int(id))
			switch {
			case m == o.Roster.Self(), p.Index > before:
				stored[m] = true
			case time.Since(p.Answered) < 2*o.Election:
				waits = true
			}
		}
		if !waits {
			return stored
		}
		select {
		case <-time.After(replica.PollInterval):
		case <-o.Reach.Done():
			return nil
		case <-bounded.Done():
			if ctx.Err() != nil || host.Committed(id) <= before {
				return nil
			}
			return stored
		}
	}
}

// proveAtHome is Prove for all members of the home shard.
func (o *Options) proveAtHome(ctx context.Context) map[MemberID]bool {
	return o.Prove(ctx, command.HomeShard, o.Roster.MemberIDs())
}
