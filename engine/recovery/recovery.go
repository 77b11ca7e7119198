package recovery

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/engine/forest"
	"github.com/vivarium-go/vivarium/engine/replica"
	"github.com/vivarium-go/vivarium/engine/roster"
	"github.com/vivarium-go/vivarium/replication"
	"github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/storage/disk"
	"github.com/vivarium-go/vivarium/tree"
)

// aloneTime bounds how long the first start after a recovery waits without any progress. Nobody
// else takes part, so only its own disk can delay it.
const aloneTime = time.Minute

// Options are all that Complete needs.
type Options struct {
	Dir     string
	Forest  forest.Forest
	Roster  *roster.Roster
	Host    *replication.Host
	Disk    *disk.Disk
	Timeout time.Duration     // of what waits for the log
	Wall    func() time.Time  // for the zxid after which all goes on
	Lacking func(error) error // adds what the node lacks
}

// Complete begins the new lineage on all shards, if this is the first start after a forced
// recovery. Until then this node sends nothing else to the log, so no transaction has a zxid that
// the lost members may have given. The home shard comes last. Until the identity file says that all is
// done, nobody else takes part, and the next start does it all again: another survivor may have
// served since.
func Complete(o Options) error {
	me := o.Roster.Identity.Now()
	if !me.Recovered || len(me.Ancestors) == 0 {
		return nil
	}
	now := session.Recovery{Lineage: me.Lineage, Parent: me.Ancestors[len(me.Ancestors)-1], Survivor: session.MemberID(me.Member)}
	home := o.Forest.Home()
	if err := o.beAlone(home); err != nil {
		return err
	}
	to, wall, err := o.base()
	if err != nil {
		return err
	}
	for _, r := range slices.Concat(o.Forest[command.HomeShard:], o.Forest[:command.HomeShard]) {
		if err := o.recoverShard(r, now, to, wall); err != nil {
			return err
		}
	}
	return o.end()
}

// base returns the zxid after which all shards go on, and the time that it follows from. If a
// start dies and is repeated, some shards have gone on already, and have the lead of the first time.
// Another survivor may have served since, so the base follows the clock.
func (o *Options) base() (base tree.Zxid, wall time.Time, err error) {
	var newest, lead tree.Zxid
	for _, r := range o.Forest {
		if err := o.beAlone(r); err != nil {
			return 0, wall, err
		}
		z, l := r.Given()
		newest, lead = max(newest, z), max(lead, l)
	}
	wall = o.Wall()
	return replica.Above(newest, lead, wall), wall, nil
}

// end records that the recovery is complete.
func (o *Options) end() error {
	return o.Roster.Identity.Amend(func(id *replication.Identity) bool { id.Recovered, id.Commits = false, nil; return true })
}

// recoverShard begins the new lineage on one shard, after a zxid that follows from a time.
func (o *Options) recoverShard(r *replica.Replica, now session.Recovery, to tree.Zxid, wall time.Time) error {
	if err := o.beAlone(r); err != nil {
		return err
	}
	table := o.Roster.Table()
	if l := table.Ensemble.Lineage; l != now.Parent && l != now.Lineage {
		return fmt.Errorf("%s: the identity file says that a recovery has ended the lineage %v, the log is of %v: part of the directory is from another time; %s", o.Dir, now.Parent, l, replication.WayOut)
	}
	var lost []session.MemberID
	for _, m := range table.List {
		if m.ID != now.Survivor {
			lost = append(lost, m.ID)
		}
	}
	from := r.Visible()
	cmd := command.EncodeRecover(now, lost, to, wall.UnixMilli())
	var proposed time.Time
	err := o.waitAlone(r, func() bool {
		if at := time.Now(); r.Visible() < to && at.Sub(proposed) >= replica.RetryAfter {
			proposed = at
			_, _ = o.Host.Propose(r.Shard, cmd) // if it is lost, it is proposed again
		}
		return r.Visible() >= to
	})
	if err == nil {
		err = o.endOrphans(r)
	}
	if err == nil {
		o.Roster.Log.Warn("recovered from this member alone", "shard", r.Shard, "lineage", now.Lineage.String(), "lost", fmt.Sprint(lost), "zxid", fmt.Sprintf("%#x", uint64(from)))
	}
	return err
}

// endOrphans ends the sessions of a further shard that the home shard does not list there. The lost
// majority had them on the home shard, and nobody else would ever end them.
func (o *Options) endOrphans(r *replica.Replica) error {
	if r.Shard == command.HomeShard {
		return nil
	}
	var proposed time.Time
	return o.waitAlone(r, func() bool {
		orphans := r.Orphans(o.Forest.Home())
		if at := time.Now(); len(orphans) > 0 && at.Sub(proposed) >= replica.RetryAfter {
			proposed = at
			orphans = orphans[:min(len(orphans), replica.PurgeBatch)]
			_, _ = o.Host.Propose(r.Shard, command.EncodePurge(at.UnixMilli(), orphans)) // likewise
		}
		return len(orphans) == 0
	})
}

// beAlone waits until this node leads a shard and has applied everything in its log.
func (o *Options) beAlone(r *replica.Replica) error {
	return o.waitAlone(r, func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), o.Timeout)
		defer cancel()
		return o.Host.Leads(r.Shard) && o.Host.Barrier(ctx, r.Shard, 0) == nil
	})
}

// waitAlone waits until done holds, as long as the shard gets on.
func (o *Options) waitAlone(r *replica.Replica, done func() bool) error {
	index, since := r.Index(), time.Now()
	for !done() {
		if now := r.Index(); now != index {
			index, since = now, time.Now()
		}
		if time.Since(since) > aloneTime {
			return fmt.Errorf("%s: member %d does not lead shard %d alone after its recovery; %s", o.Dir, o.Roster.Self(), r.Shard, o.Lacking(context.DeadlineExceeded))
		}
		select {
		case <-time.After(replica.PollInterval):
		case <-o.Disk.Failed():
			return o.Disk.Err()
		}
	}
	return nil
}
