package replica

import (
	"log/slog"
	"time"

	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/engine/outbox"
	"github.com/vivarium-go/vivarium/replication"
	"github.com/vivarium-go/vivarium/tree"
)

// The reaper's interval, as ZooKeeper's of the same meaning.
const (
	DefaultContainerCheckInterval = time.Minute // znode.container.checkIntervalMs

	ReapMax      = 10_000          // znode.container.maxPerMinute: znodes in one round
	reapBatch    = 1_000           // in one log entry, of batchBytesMax bytes at limit
	reapPause    = 1_000           // znodes that are looked at while nothing is applied
	reapOverhead = 32              // bytes of a znode there beside its path, at limit
	NeverUsedAge = 5 * time.Minute // znode.container.maxNeverUsedIntervalMs
)

// A reaper removes containers that have lost their last child, or never had one, and TTL znodes
// that nobody has set for as long as they may live, while its node leads. It proposes ordinary
// deletions that name what it saw, so one that comes late, twice, or from a former leader
// removes nothing that was used since.
//
// Ages count on this node's own clock from when its machine applied the znode's newest write,
// or loaded it: the wall clocks of members that wrote may be years apart. They are no part of
// the replicated state, so the next leader may take a znode for younger or older, but never for
// older than it is.
type reaper struct {
	// Immutable after newReaper.
	replica  *Replica
	raft     outbox.Raft
	member   replication.MemberID
	interval time.Duration
	log      *slog.Logger

	// Owned by loop.
	newest      proposed
	newestZnode command.Mortal // in it
}

func newReaper(r *Replica, raft outbox.Raft, member replication.MemberID, interval time.Duration, log *slog.Logger) *reaper {
	return &reaper{replica: r, raft: raft, member: member, interval: interval, log: log}
}

// loop ends when either channel is closed.
func (r *reaper) loop(stop, done <-chan struct{}) {
	ticker := time.NewTicker(r.interval)
	defer ticker.Stop()
	for {
		select {
		case <-stop:
			return
		case <-done:
			return
		case <-ticker.C:
		}
		r.round(time.Now())
	}
}

// round looks at all mortal znodes once and proposes the removal of those whose time has come,
// unless what it proposed before may still come: rounds can be closer together than commits.
func (r *reaper) round(now time.Time) {
	if r.raft.Leader(r.replica.Shard).Member != r.member || r.newest.pending(now) && r.replica.isUnchanged(r.newestZnode) {
		return
	}
	due := r.replica.dueMortals(now, ReapMax)
	for len(due) > 0 {
		n := entryLen(due)
		p, err := r.raft.Propose(r.replica.Shard, command.EncodeReap(now.UnixMilli(), due[:n]))
		if err != nil {
			r.log.Debug("reap not proposed", "cause", err) // the next round proposes it again
			return
		}
		r.newest, r.newestZnode = proposed{at: now, proposal: p}, due[n-1]
		due = due[n:]
	}
}

// entryLen returns how many znodes go into one log entry, one at least.
func entryLen(due []command.Mortal) (n int) {
	for size := 0; n < min(len(due), reapBatch); n++ {
		if size += len(due[n].Path) + reapOverhead; size > command.BatchBytesMax && n > 0 {
			break
		}
	}
	return n
}

// over reports whether a znode's time has come.
func mayReap(m tree.Mortal, age time.Duration) bool {
	switch {
	case m.Busy:
		return false
	case m.TTL == 0:
		return m.Used || age > NeverUsedAge
	}
	return age > time.Duration(m.TTL)*time.Millisecond
}

// mortals returns znodes whose time has come, at limit so many. It looks at all whose time may
// come, and lets entries be applied meanwhile: a million take half a second.
func (r *Replica) dueMortals(now time.Time, limit int) (due []command.Mortal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	age, looked := now.Sub(r.mu.loadedAt), 0
	r.tree.Load().Mortals(func(z tree.Mortal) bool {
		if looked++; looked%reapPause == 0 {
			r.mu.Unlock()
			r.mu.Lock()
		}
		if mayReap(z, age-z.Since) {
			due = append(due, command.Mortal{Path: z.Path, Seen: z.Seen})
		}
		return len(due) < limit
	})
	return due
}

// isUnchanged reports whether a znode is as it was seen.
func (r *Replica) isUnchanged(z command.Mortal) bool {
	stat, ok := r.tree.Load().Exists(z.Path)
	return ok && tree.Seen{Czxid: stat.Czxid, Mzxid: stat.Mzxid, Pzxid: stat.Pzxid} == z.Seen
}

// reap removes containers and TTL znodes that are still as the reaper saw them, each in a transaction of its own.
func (r *Replica) applyReap(c *command.Command) {
	t := r.tree.Load()
	for _, z := range c.Reap {
		h := tree.Header{Zxid: r.mu.Zxid + 1, Time: c.Wall, System: true}
		if t.Reap(h, z.Path, z.Seen) == nil { // else somebody used it since
			r.publish(t, h.Zxid)
		}
	}
}
