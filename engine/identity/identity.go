package identity

import (
	"crypto/rand"
	"errors"
	"fmt"
	"slices"

	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/engine/datadir"
	"github.com/vivarium-go/vivarium/engine/forest"
	"github.com/vivarium-go/vivarium/engine/roster"
	"github.com/vivarium-go/vivarium/replication"
	"github.com/vivarium-go/vivarium/replication/transport"
	"github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/storage"
)

// ErrEmpty means that the directory is empty, and must be one that a node has used before.
var ErrEmpty = errors.New("is empty instead of the directory that the node had")

// A Check finds every reason to refuse a directory. It changes nothing there.
type Check struct {
	File   *datadir.IdentityFile
	Roster *roster.Roster
	Host   func(replication.Identity) replication.Config // of the Raft groups of such a member

	// As in Config of package engine.
	Member    replication.MemberID
	Alone     bool
	Ensemble  string
	Shards    int
	Directory [16]byte
}

// Identity checks that the directory belongs to this member, and that images and logs fit. A node that
// has yet to join has none of them. It sets the file's content for this start, and returns the state of
// the logs.
func (c *Check) Identity() (logs []transport.ShardState, err error) {
	dir := c.File.Dir
	id, found, err := replication.ReadIdentity(c.File.Disk, dir)
	if err != nil {
		return nil, err
	}
	if found && id.Recovering != ([16]byte{}) {
		return nil, fmt.Errorf("%s: %w", c.File.Dir, datadir.Interrupted(id))
	}
	again := c.Directory != [16]byte{}
	if again && found && id.Directory != c.Directory {
		return nil, fmt.Errorf("%s is another directory (%x) than the one that the node had (%x)", c.File.Dir, id.Directory, c.Directory)
	}
	comesBack := found && id.Out != ""
	if comesBack {
		if id, err = c.comeBack(id); err != nil {
			return nil, err
		}
	}
	if found {
		if id.Member == 0 {
			c.adopt(&id)
		}
		if err = c.sameFounding(&id); err == nil && id.Member == 0 && !comesBack {
			err = datadir.Former{Disk: c.File.Disk, Dir: c.File.Dir, Log: c.Roster.Log}.CheckUnused(c.Shards)
		}
	} else {
		id, err = c.newIdentity()
	}
	if err != nil {
		return nil, err
	}
	for i := range c.Shards {
		state, err := c.log(id, replication.ShardID(i+1), found)
		if err != nil {
			return nil, err
		}
		logs = append(logs, state)
	}
	if again && !found {
		return nil, fmt.Errorf("%s %w (%x): is its volume mounted?", c.File.Dir, ErrEmpty, c.Directory)
	}
	id.Start++
	c.File.Set(id)
	c.Roster.Claim(id.Member)
	return logs, nil
}

// newIdentity returns the identity of an empty directory.
func (c *Check) newIdentity() (replication.Identity, error) {
	id := replication.Identity{Peers: make(map[replication.MemberID][16]byte)}
	c.adopt(&id)
	_, err := rand.Read(id.Directory[:])
	return id, err
}

// adopt takes the settings of a directory that is in no ensemble yet from the config. Only who is
// alone knows already who it is.
func (c *Check) adopt(id *replication.Identity) {
	id.Ensemble, id.Shards = c.Ensemble, c.Shards
	if c.Alone && id.Former == (replication.Former{}) {
		id.Found(c.Member, c.Roster.Founders())
	}
}

// comeBack returns a new identity for the directory of a member that is out. A member that somebody
// removed stays out, until somebody empties the directory.
func (c *Check) comeBack(old replication.Identity) (replication.Identity, error) {
	switch {
	case old.Out == session.Removed.String():
		return old, fmt.Errorf("%s: %w: somebody removed member %d: empty the directory to let this process join as a new member", c.File.Dir, roster.ErrRemoved, old.Member)
	case c.Alone && old.Out == replication.Superseded:
		return old, fmt.Errorf("%s: %w: a forced recovery goes on without member %d: set Join to let this process join as a new member, which drops the data", c.File.Dir, roster.ErrSuperseded, old.Member)
	case c.Alone:
		return old, fmt.Errorf("%s: %w: member %d is out of the ensemble (%s): set Join to let this process join as a new member", c.File.Dir, roster.ErrRemoved, old.Member, old.Out)
	}
	id, err := c.newIdentity()
	id.Former = replication.Former{Member: old.Member, Directory: old.Directory}
	return id, err
}

// Start compares this start with the starts in the images, and the lineages. The identity file
// may be older than the rest.
func (c *Check) Start(shards forest.Forest) error {
	id := c.File.Now()
	if l := shards.Home().Lineage(); id.Lineage != (session.Lineage{}) && l != (session.Lineage{}) && l != id.Lineage && !slices.Contains(id.Ancestors, [16]byte(l)) {
		return fmt.Errorf("%s: the identity file is of the lineage %v, the image of %v: part of the directory is from another ensemble; %s", c.File.Dir, session.Lineage(id.Lineage), l, replication.WayOut)
	}
	others := func(m session.Member) bool { return m.ID != session.MemberID(id.Member) && m.OutOf() < len(shards) }
	if c.Alone && slices.ContainsFunc(c.Roster.Table().List, others) {
		return c.notAlone()
	}
	for _, r := range shards {
		o, _ := r.Origin(session.MemberID(id.Member))
		if err := datadir.CheckOrigin(c.File.Dir, o, id.Start); err != nil {
			return err
		}
	}
	return nil
}

// sameFounding checks that the directory was founded as the config says. Members may have come and
// gone since, and the config says only where to find some of them.
func (c *Check) sameFounding(id *replication.Identity) error {
	switch {
	case c.Alone && (id.Joined || id.Member == 0 || len(id.Founders) > 1):
		return c.notAlone()
	case c.Alone && id.Member != c.Member:
		return fmt.Errorf("%s belongs to member %d, the config says %d", c.File.Dir, id.Member, c.Member)
	case id.Ensemble != c.Ensemble:
		return fmt.Errorf("%s belongs to the ensemble %q, the config says %q", c.File.Dir, id.Ensemble, c.Ensemble)
	case id.Shards != c.Shards:
		return fmt.Errorf("%s was founded with Shards %d, the config says %d: the number is fixed at founding, so set it to %d, or found another ensemble in empty directories", c.File.Dir, id.Shards, c.Shards, id.Shards)
	case id.Log != "" && id.Log != replication.LogTan:
		return fmt.Errorf("%s has a raft log of the type %q, this version reads %q", c.File.Dir, id.Log, replication.LogTan)
	}
	return nil
}

func (c *Check) notAlone() error {
	return fmt.Errorf("%s is of an ensemble with other members, and the config names nobody: set Members, or Join and Advertise", c.File.Dir)
}

// log compares the image with the log, through a view of the directory that changes nothing.
// If founded, the directory has an identity file. A node that has yet to join has neither.
func (c *Check) log(me replication.Identity, id replication.ShardID, founded bool) (state transport.ShardState, err error) {
	if me.Member == 0 && founded {
		return state, nil
	}
	view := c.File.Disk.View()
	var x datadir.Extent
	if x.Applied, _, err = storage.Peek(storage.Options{Disk: view, Dir: datadir.ImageDir(c.File.Dir, id), Logger: c.Roster.Log}); err != nil {
		return state, err
	}
	cfg := c.Host(me)
	cfg.Disk = view
	if x.Log, err = replication.CheckLog(cfg, id, x.Applied, new(command.Reader).Check); err != nil {
		return state, err
	}
	return transport.ShardState{Term: x.Log.Term, Vote: uint64(x.Log.Vote), Last: x.Log.Last}, x.Check(c.File.Dir, founded, me.Log != "")
}
