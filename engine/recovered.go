package engine

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/engine/replica"
	"github.com/vivarium-go/vivarium/replication"
	"github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/tree"
)

// aloneTime bounds how long the first start after a recovery waits without any progress. Nobody
// else takes part, so only its own disk can delay it.
const aloneTime = time.Minute

// completeRecovery begins the new lineage on all shards, if this is the first start after a forced
// recovery. Until then this node sends nothing else to the log, so no transaction has a zxid that
// the lost members may have given. The home shard comes last. Until the identity file says that all is
// done, nobody else takes part, and the next start does it all again: another survivor may have
// served since.
func (e *Engine) completeRecovery() error {
	me := e.identity.Now()
	if !me.Recovered || len(me.Ancestors) == 0 {
		return nil
	}
	now := session.Recovery{Lineage: me.Lineage, Parent: me.Ancestors[len(me.Ancestors)-1], Survivor: session.MemberID(me.Member)}
	home := e.home()
	if err := e.beAlone(home); err != nil {
		return err
	}
	base, wall, err := e.recoveryBase()
	if err != nil {
		return err
	}
	for _, r := range slices.Concat(e.shards[command.HomeShard:], e.shards[:command.HomeShard]) {
		if err := e.recoverShard(r, now, base, wall); err != nil {
			return err
		}
	}
	return e.endRecovery()
}

// recoveryBase returns the zxid after which all shards go on, and the time that it follows from. If a
// start dies and is repeated, some shards have gone on already, and have the lead of the first time.
// Another survivor may have served since, so the base follows the clock.
func (e *Engine) recoveryBase() (base tree.Zxid, wall time.Time, err error) {
	var newest, lead tree.Zxid
	for _, r := range e.shards {
		if err := e.beAlone(r); err != nil {
			return 0, wall, err
		}
		z, l := r.Given()
		newest, lead = max(newest, z), max(lead, l)
	}
	wall = e.clock.Wall()
	return replica.Above(newest, lead, wall), wall, nil
}

// recovers reports whether this is the first start after a forced recovery, and not complete.
func (e *Engine) recovers() bool {
	return e.identity.Now().Recovered
}

// endRecovery records that the recovery is complete.
func (e *Engine) endRecovery() error {
	return e.identity.Amend(func(id *replication.Identity) bool { id.Recovered, id.Commits = false, nil; return true })
}

// recoverShard begins the new lineage on one shard, after a zxid that follows from a time.
func (e *Engine) recoverShard(r *replica.Replica, now session.Recovery, to tree.Zxid, wall time.Time) error {
	if err := e.beAlone(r); err != nil {
		return err
	}
	table := e.roster.Table()
	if l := table.Ensemble.Lineage; l != now.Parent && l != now.Lineage {
		return fmt.Errorf("%s: the identity file says that a recovery has ended the lineage %v, the log is of %v: part of the directory is from another time; %s", e.cfg.Dir, now.Parent, l, replication.WayOut)
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
	err := e.waitAlone(r, func() bool {
		if at := time.Now(); r.Visible() < to && at.Sub(proposed) >= replica.RetryAfter {
			proposed = at
			_, _ = e.host.Load().Propose(r.Shard, cmd) // if it is lost, it is proposed again
		}
		return r.Visible() >= to
	})
	if err == nil {
		err = e.endOrphans(r)
	}
	if err == nil {
		e.log.Warn("recovered from this member alone", "shard", r.Shard, "lineage", now.Lineage.String(), "lost", fmt.Sprint(lost), "zxid", fmt.Sprintf("%#x", uint64(from)))
	}
	return err
}

// endOrphans ends the sessions of a further shard that the home shard does not list there. The lost
// majority had them on the home shard, and nobody else would ever end them.
func (e *Engine) endOrphans(r *replica.Replica) error {
	if r.Shard == command.HomeShard {
		return nil
	}
	var proposed time.Time
	return e.waitAlone(r, func() bool {
		orphans := r.Orphans(e.home())
		if at := time.Now(); len(orphans) > 0 && at.Sub(proposed) >= replica.RetryAfter {
			proposed = at
			orphans = orphans[:min(len(orphans), replica.PurgeBatch)]
			_, _ = e.host.Load().Propose(r.Shard, command.EncodePurge(at.UnixMilli(), orphans)) // likewise
		}
		return len(orphans) == 0
	})
}

// beAlone waits until this node leads a shard and has applied everything in its log.
func (e *Engine) beAlone(r *replica.Replica) error {
	return e.waitAlone(r, func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), e.cfg.RequestTimeout)
		defer cancel()
		return e.host.Load().Leads(r.Shard) && e.host.Load().Barrier(ctx, r.Shard, 0) == nil
	})
}

// waitAlone waits until done holds, as long as the shard gets on.
func (e *Engine) waitAlone(r *replica.Replica, done func() bool) error {
	index, since := r.Index(), time.Now()
	for !done() {
		if now := r.Index(); now != index {
			index, since = now, time.Now()
		}
		if time.Since(since) > aloneTime {
			return fmt.Errorf("%s: member %d does not lead shard %d alone after its recovery; %s", e.cfg.Dir, e.roster.Self(), r.Shard, e.notReady(context.DeadlineExceeded))
		}
		select {
		case <-time.After(replica.PollInterval):
		case <-e.disk.Failed():
			return e.disk.Err()
		}
	}
	return nil
}

// failAsSuperseded records in the identity file that a forced recovery has gone on without this
// member, and fails the node.
func (e *Engine) failAsSuperseded(how string) {
	e.recordOut(replication.Superseded)
	e.fail(fmt.Errorf("%w: member %d: %s", ErrSuperseded, e.roster.Self(), how))
}
