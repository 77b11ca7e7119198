package replica

import (
	"log/slog"
	"time"

	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/engine/outbox"
	"github.com/vivarium-go/vivarium/tree"
)

// The limits of a reaper. A limit with the name of one of ZooKeeper's settings beside it has that
// setting's default.
const (
	DefaultContainerCheckInterval = time.Minute // znode.container.checkIntervalMs

	ReapMax      = 10_000          // znodes in one round
	ReapNext     = time.Second     // from a full round to the next; ZooKeeper has 10,000 a minute
	reapBatch    = 1_000           // znodes in one log entry, which has at most BatchBytesMax bytes
	reapPause    = 1_000           // znodes to look at before entries may be applied again
	reapOverhead = 32              // most bytes of a znode in the entry besides its path
	NeverUsedAge = 5 * time.Minute // znode.container.maxNeverUsedIntervalMs
)

// A reaper removes znodes while its node leads. These are containers that have lost their last
// child or never had one, and TTL znodes that nobody has set for as long as they may live. It
// proposes deletions that name what it saw. So a deletion that comes late, twice, or from a former
// leader removes nothing that was used since.
//
// Ages count on this node's own clock, because the wall clocks of members may be years apart. An
// age begins when this node's replica applied the znode's newest write, or loaded the znode. It is
// not part of the replicated state. The next leader may see a different age, but no replica sees
// more than the true age.
type reaper struct {
	// Immutable.
	replica  *Replica
	raft     outbox.Raft
	interval time.Duration
	log      *slog.Logger

	// Owned by the loop.
	newest      proposed       // the newest Reap
	newestZnode command.Mortal // the last znode in it
	full        bool           // the newest round was; others may be due
}

func newReaper(r *Replica, raft outbox.Raft, interval time.Duration, log *slog.Logger) *reaper {
	return &reaper{replica: r, raft: raft, interval: interval, log: log}
}

// loop calls round at every interval, and again soon as long as rounds are full: more znodes may
// become due in an interval than a round takes. It returns when either channel is closed.
func (r *reaper) loop(stop, done <-chan struct{}) {
	timer := time.NewTimer(r.interval)
	defer timer.Stop()
	for {
		select {
		case <-stop:
			return
		case <-done:
			return
		case <-timer.C:
		}
		r.round(time.Now())
		if r.full {
			timer.Reset(min(r.interval, ReapNext))
		} else {
			timer.Reset(r.interval)
		}
	}
}

// round looks at all mortal znodes once and proposes to remove those whose time has come. It does
// nothing while its previous proposal may still be applied, because rounds can be closer together
// than commits.
func (r *reaper) round(now time.Time) {
	if !r.replica.leads(r.replica.Shard, r.raft) {
		r.full = false
		return
	}
	if r.newest.pending(now) && r.replica.isUnchanged(r.newestZnode) {
		return
	}
	due := r.replica.dueMortals(now, ReapMax)
	r.full = len(due) == ReapMax
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

// entryLen returns how many of the znodes go into one log entry. It is at least one.
func entryLen(due []command.Mortal) (n int) {
	for size := 0; n < min(len(due), reapBatch); n++ {
		if size += len(due[n].Path) + reapOverhead; size > command.BatchBytesMax && n > 0 {
			break
		}
	}
	return n
}

// mayReap reports whether the time of a znode with the given age has come.
func mayReap(m tree.Mortal, age time.Duration) bool {
	switch {
	case m.Busy:
		return false
	case m.TTL == 0:
		return m.Used || age > NeverUsedAge
	}
	return age > time.Duration(m.TTL)*time.Millisecond
}

// dueMortals returns at most limit znodes whose time has come. It looks at all mortal znodes, which
// takes half a second for a million. So it lets entries be applied meanwhile.
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

// isUnchanged reports whether a znode is as the reaper saw it.
func (r *Replica) isUnchanged(z command.Mortal) bool {
	stat, ok := r.tree.Load().Exists(z.Path)
	return ok && tree.Seen{Czxid: stat.Czxid, Mzxid: stat.Mzxid, Pzxid: stat.Pzxid} == z.Seen
}

// applyReap removes the containers and TTL znodes that are still as the reaper saw them, each in a
// transaction of its own. While a backup is loaded, it removes none: the children of a container may
// be in a later part.
func (r *Replica) applyReap(c *command.Command) {
	if r.mu.Seed.Loading() {
		return
	}
	t := r.tree.Load()
	for _, z := range c.Reap {
		h := tree.Header{Zxid: r.mu.Zxid + 1, Time: c.Wall, System: true}
		if t.Reap(h, z.Path, z.Seen) == nil { // otherwise it was used since
			r.publish(t, h.Zxid)
			if r.audit != nil {
				r.auditSystem(Audited{Why: WhyReaped, Wall: c.Wall, Zxid: h.Zxid})
			}
		}
	}
}
