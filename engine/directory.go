package engine

import (
	"crypto/rand"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/engine/datadir"
	"github.com/vivarium-go/vivarium/internal/crowd"
	"github.com/vivarium-go/vivarium/replication"
	"github.com/vivarium-go/vivarium/replication/transport"
	"github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/storage"
)

// warnReadable warns if others on the machine may read what the directory has. What the node makes is
// for its owner alone, but the directory may be a copy.
func (e *Engine) warnReadable() {
	const enter, read = 0o001, 0o004
	names, err := e.disk.List(e.cfg.Dir)
	if dir, failed := e.disk.Stat(e.cfg.Dir); err != nil || failed != nil || dir.Mode().Perm()&enter == 0 {
		return
	}
	for _, name := range names {
		path := filepath.Join(e.cfg.Dir, name)
		if info, err := e.disk.Stat(path); err == nil && info.Mode().Perm()&read != 0 {
			e.log.Warn("everybody on the machine may read the node's data", "file", path, "mode", info.Mode().String())
			return
		}
	}
}

// warnFiles logs if the process may open fewer files than the node may need.
func (e *Engine) warnFiles() {
	if files, want, lacks := crowd.Lacks(e.cfg.Shards); lacks {
		e.log.Warn("this process may open fewer files than the node may need", "files", files, "want", want)
	}
}

// checkIdentity checks that the directory belongs to this member, and that images and logs fit. A
// node that has yet to join has none of them.
func (e *Engine) checkIdentity() error {
	id, found, err := replication.ReadIdentity(e.disk, e.cfg.Dir)
	if err != nil {
		return err
	}
	if found && id.Recovering != ([16]byte{}) {
		return fmt.Errorf("%s: %w", e.cfg.Dir, datadir.Interrupted(id))
	}
	again := e.cfg.Directory != [16]byte{}
	if again && found && id.Directory != e.cfg.Directory {
		return fmt.Errorf("%s is another directory (%x) than the one that the node had (%x)", e.cfg.Dir, id.Directory, e.cfg.Directory)
	}
	comesBack := found && id.Out != ""
	if comesBack {
		if id, err = e.comeBack(id); err != nil {
			return err
		}
	}
	if found {
		if id.Member == 0 {
			e.adopt(&id)
		}
		if err = e.sameFounding(&id); err == nil && id.Member == 0 && !comesBack {
			err = e.former().CheckUnused(e.cfg.Shards)
		}
	} else {
		id, err = e.newIdentity()
	}
	if err != nil {
		return err
	}
	for i := range e.cfg.Shards {
		if err := e.checkLog(id, ShardID(i+1), found); err != nil {
			return err
		}
	}
	if again && !found {
		return fmt.Errorf("%s %w (%x): is its volume mounted?", e.cfg.Dir, errEmpty, e.cfg.Directory)
	}
	id.Start++
	e.identity.Set(id)
	e.roster.Claim(id.Member)
	return nil
}

// newIdentity returns the identity of an empty directory.
func (e *Engine) newIdentity() (replication.Identity, error) {
	id := replication.Identity{Peers: make(map[MemberID][16]byte)}
	e.adopt(&id)
	_, err := rand.Read(id.Directory[:])
	return id, err
}

// adopt takes the settings of a directory that is in no ensemble yet from the config. Only who is
// alone knows already who it is.
func (e *Engine) adopt(id *replication.Identity) {
	id.Ensemble, id.Shards = e.cfg.Ensemble, e.cfg.Shards
	if e.cfg.Alone && id.Former == (replication.Former{}) {
		id.Found(e.cfg.Member, e.roster.Founders())
	}
}

// comeBack returns a new identity for the directory of a member that is out. A member that somebody
// removed stays out, until somebody empties the directory.
func (e *Engine) comeBack(old replication.Identity) (replication.Identity, error) {
	switch {
	case old.Out == session.Removed.String():
		return old, fmt.Errorf("%s: %w: somebody removed member %d: empty the directory to let this process join as a new member", e.cfg.Dir, ErrRemoved, old.Member)
	case e.cfg.Alone && old.Out == replication.Superseded:
		return old, fmt.Errorf("%s: %w: a forced recovery goes on without member %d: set Join to let this process join as a new member, which drops the data", e.cfg.Dir, ErrSuperseded, old.Member)
	case e.cfg.Alone:
		return old, fmt.Errorf("%s: %w: member %d is out of the ensemble (%s): set Join to let this process join as a new member", e.cfg.Dir, ErrRemoved, old.Member, old.Out)
	}
	id, err := e.newIdentity()
	id.Former = replication.Former{Member: old.Member, Directory: old.Directory}
	return id, err
}

// checkStart compares this start with the starts in the images, and the lineages. The identity file
// may be older than the rest.
func (e *Engine) checkStart() error {
	id := e.identity.Now()
	if l := e.home().Lineage(); id.Lineage != (session.Lineage{}) && l != (session.Lineage{}) && l != id.Lineage && !slices.Contains(id.Ancestors, [16]byte(l)) {
		return fmt.Errorf("%s: the identity file is of the lineage %v, the image of %v: part of the directory is from another ensemble; %s", e.cfg.Dir, session.Lineage(id.Lineage), l, replication.WayOut)
	}
	others := func(m session.Member) bool { return m.ID != session.MemberID(id.Member) && m.OutOf() < len(e.shards) }
	if e.cfg.Alone && slices.ContainsFunc(e.roster.Table().List, others) {
		return e.notAlone()
	}
	for _, r := range e.shards {
		o, _ := r.Origin(session.MemberID(id.Member))
		if err := datadir.CheckOrigin(e.cfg.Dir, o, id.Start); err != nil {
			return err
		}
	}
	return nil
}

// countStart makes the start durable. By now, everything for which the directory can be refused has
// been checked.
func (e *Engine) countStart() error {
	return e.identity.Write()
}

// sameFounding checks that the directory was founded as the config says. Members may have come and
// gone since, and the config says only where to find some of them.
func (e *Engine) sameFounding(id *replication.Identity) error {
	switch {
	case e.cfg.Alone && (id.Joined || id.Member == 0 || len(id.Founders) > 1):
		return e.notAlone()
	case e.cfg.Alone && id.Member != e.cfg.Member:
		return fmt.Errorf("%s belongs to member %d, the config says %d", e.cfg.Dir, id.Member, e.cfg.Member)
	case id.Ensemble != e.cfg.Ensemble:
		return fmt.Errorf("%s belongs to the ensemble %q, the config says %q", e.cfg.Dir, id.Ensemble, e.cfg.Ensemble)
	case id.Shards != e.cfg.Shards:
		return fmt.Errorf("%s was founded with Shards %d, the config says %d: the number is fixed at founding, so set it to %d, or found another ensemble in empty directories", e.cfg.Dir, id.Shards, e.cfg.Shards, id.Shards)
	case id.Log != "" && id.Log != replication.LogTan:
		return fmt.Errorf("%s has a raft log of the type %q, this version reads %q", e.cfg.Dir, id.Log, replication.LogTan)
	}
	return nil
}

func (e *Engine) notAlone() error {
	return fmt.Errorf("%s is of an ensemble with other members, and the config names nobody: set Members, or Join and Advertise", e.cfg.Dir)
}

// checkLog compares the image with the log, through a view of the directory that changes nothing.
// If founded, the directory has an identity file. A node that has yet to join has neither.
func (e *Engine) checkLog(me replication.Identity, id ShardID, founded bool) error {
	if me.Member == 0 && founded {
		e.found = append(e.found, transport.ShardState{})
		return nil
	}
	view := e.disk.View()
	var x datadir.Extent
	var err error
	if x.Applied, _, err = storage.Peek(storage.Options{Disk: view, Dir: datadir.ImageDir(e.cfg.Dir, id), Logger: e.log}); err != nil {
		return err
	}
	cfg := e.hostConfig(me)
	cfg.Disk = view
	if x.Log, err = replication.CheckLog(cfg, id, x.Applied, new(command.Reader).Check); err != nil {
		return err
	}
	e.found = append(e.found, transport.ShardState{Term: x.Log.Term, Vote: uint64(x.Log.Vote), Last: x.Log.Last})
	return x.Check(e.cfg.Dir, founded, me.Log != "")
}

// former returns what a former member has left in the directory.
func (e *Engine) former() datadir.Former {
	return datadir.Former{Disk: e.disk, Dir: e.cfg.Dir, Log: e.log}
}

// crampedLoop deletes what a former member has left when the disk lacks room. It ends with the node.
func (e *Engine) crampedLoop() {
	for {
		select {
		case <-e.cramped:
			e.former().MakeRoom()
		case <-e.disk.Failed():
			return
		case <-e.stop:
			return
		}
	}
}
