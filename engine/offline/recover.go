package offline

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"

	"github.com/vivarium-go/vivarium/engine/datadir"
	"github.com/vivarium-go/vivarium/engine/replica"
	"github.com/vivarium-go/vivarium/internal/certs"
	"github.com/vivarium-go/vivarium/internal/files"
	"github.com/vivarium-go/vivarium/replication"
	"github.com/vivarium-go/vivarium/replication/transport"
	"github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/storage"
	"github.com/vivarium-go/vivarium/storage/disk"
	"github.com/vivarium-go/vivarium/tree"
)

// Remains are what a stopped member's directory has of its ensemble.
type Remains struct {
	Dir      string
	Member   replication.MemberID
	Ensemble string
	Lineage  session.Lineage
	Joined   bool // it is no founder
	Out      string
	// Recovering says that a recovery was interrupted, Recovered that one is done and no node has
	// been started since.
	Recovering, Recovered bool
	Members               []session.Member // of the table of members
	Shards                []ShardRemains

	id replication.Identity
}

// ShardRemains are what a directory has of a shard.
type ShardRemains struct {
	Shard replication.ShardID
	replication.Remains
	Applied uint64 // index of the newest entry in the image
	// Certain is the newest transaction that is known to be committed, and Newest the newest one in
	// the log. If the ensemble uses ACL schemes that this program does not have, both are the image's.
	Certain, Newest tree.Zxid
}

// Unknown returns how many entries are not known to be committed.
func (s ShardRemains) Unknown() uint64 { return s.Last - min(s.Last, max(s.Committed, s.Applied)) }

// Voters returns the other members that vote on any shard, sorted.
func (r *Remains) Voters() []replication.MemberID {
	if r.Recovering {
		return r.id.Stopped // some logs may know only this member by now
	}
	var all []replication.MemberID
	for _, s := range r.Shards {
		all = append(all, s.Members.Voters...)
	}
	slices.Sort(all)
	return slices.DeleteFunc(slices.Compact(all), func(m replication.MemberID) bool { return m == r.Member })
}

// Compare compares what two directories of one lineage have: the last terms, then the last indexes,
// shard by shard. The result is above zero if r has more on some shard and less on none, and below
// zero for the reverse. It is zero if they have the same. If each has more somewhere, ok is false.
func (r *Remains) Compare(other *Remains) (more int, ok bool) {
	for i, s := range r.Shards {
		o := other.Shards[i]
		d := slices.Compare([]uint64{s.Term, s.Last}, []uint64{o.Term, o.Last})
		if d*more < 0 {
			return 0, false
		}
		more = max(min(more+d, 1), -1)
	}
	return more, true
}

// ErrRecover is wrapped by the errors that say why a directory cannot be recovered.
var ErrRecover = errors.New("this directory cannot be recovered")

// Look reads what a stopped member's directory has, and changes nothing. The error says why it
// cannot: replication.ErrLocked, ErrNoMember, or damage.
func Look(dir string) (Remains, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return Remains{}, err
	}
	lock, err := replication.LockShared(files.OS, dir)
	if err != nil {
		return Remains{}, err
	}
	defer lock.Close()
	d, err := disk.Open(files.OS, dir)
	if err != nil {
		return Remains{}, err
	}
	return look(d, dir)
}

// look does Look in a directory that is locked.
func look(d *disk.Disk, dir string) (Remains, error) {
	report, id, err := examine(d, dir)
	if err != nil {
		return Remains{}, err
	}
	if report.Damaged() {
		errs := []error{report.Err}
		for _, s := range report.Shards {
			errs = append(errs, s.Err)
		}
		return Remains{}, fmt.Errorf("%s: %w: it is damaged, as vivarium check shows: choose another directory, or restore this one: %w", dir, ErrRecover, errors.Join(errs...))
	}
	r := Remains{Dir: dir, Member: id.Member, Ensemble: id.Ensemble, Lineage: id.Lineage, Joined: id.Joined, Out: id.Out,
		Recovering: id.Recovering != ([16]byte{}), Recovered: id.Recovered, id: id}
	for _, s := range report.Shards {
		if err := r.lookAt(d, s); err != nil {
			return Remains{}, fmt.Errorf("%s: %w: %w", dir, ErrRecover, err)
		}
	}
	return r, nil
}

// lookAt adds what the directory has of a shard. The image may lag far behind the log, so it
// applies the log to the image, in memory.
func (r *Remains) lookAt(d *disk.Disk, checked ShardReport) (err error) {
	s := ShardRemains{Shard: checked.Shard, Applied: checked.Applied, Certain: checked.Zxid, Newest: checked.Zxid}
	known := knew(r.id, s.Shard)
	past, broken := replica.LoadPast(storage.Options{Disk: d, Dir: datadir.ImageDir(r.Dir, s.Shard)}, s.Shard)
	s.Remains, err = replication.ReadRemains(offline(d.View(), r.Dir, r.id), s.Shard, func(e replication.Entry, committed bool) error {
		if broken == nil {
			broken = past.Apply(e.Index, e.Cmd)
		}
		if broken == nil && (committed && e.Index <= known || e.Index <= s.Applied) {
			s.Certain = past.Zxid()
		}
		return nil
	})
	if err != nil {
		return err
	}
	s.Committed = min(s.Committed, known)
	if past != nil {
		r.Members = append(r.Members, past.Members().List...) // only the home shard has any
	}
	if broken == nil {
		s.Newest = past.Zxid()
	} else {
		s.Certain = checked.Zxid
	}
	r.Shards = append(r.Shards, s)
	return nil
}

// knew returns up to which entry the log of a shard may know what is committed. A recovery that was
// interrupted may have written there that all entries are.
func knew(id replication.Identity, shard replication.ShardID) uint64 {
	if i := int(shard) - 1; i < len(id.Commits) {
		return id.Commits[i]
	}
	return math.MaxUint64
}

// offline returns the config of the Raft groups of a stopped member.
func offline(d replication.Disk, dir string, id replication.Identity) replication.Config {
	return replication.Config{Dir: dir, Disk: d, Member: id.Member, Digest: id.Digest, Shards: id.Shards}
}

// RecoverOptions say what to recover, and who is lost.
type RecoverOptions struct {
	Dir string
	// Stopped are the other voters. None of them runs, nor will ever run again as what it was.
	Stopped []replication.MemberID
	Join    []string // where members may be that still run, besides the addresses in the directory
	// Gone are those of Stopped that are gone for good, for certain: nobody has to be asked whether
	// they still run. Each other one needs an address in the directory, or one in Join.
	Gone []replication.MemberID
	TLS  *tls.Config // between members; nil means plain text

	// For tests.
	Files   files.System                        // nil means the operating system's
	Network transport.Network                   // nil means TCP
	Fault   func(op disk.Op, name string) error // called before every disk call that writes
}

// Recover makes the member of a directory the only one of its ensemble, after a majority of the
// voters is lost for good. It returns what the directory had. It first asks all addresses that it
// knows. If a member of the same lineage knows a leader, or one that is said to be stopped answers,
// it refuses. Then nothing is changed. If Recover is interrupted, the next call goes on.
func Recover(ctx context.Context, o RecoverOptions) (r Remains, err error) {
	if o.Files == nil {
		o.Files = files.OS
	}
	if o.Network == nil {
		o.Network = transport.TCP("", certs.Fixed(o.TLS), true) // whoever still runs is to be noticed
	}
	if o.Dir, err = filepath.Abs(o.Dir); err != nil {
		return r, err
	}
	if info, err := o.Files.Stat(o.Dir); err != nil {
		return r, err // before the lock, which would make it
	} else if !info.IsDir() {
		return r, fmt.Errorf("%s is not a directory", o.Dir)
	}
	lock, err := replication.LockDir(o.Files, o.Dir)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	d, err := disk.Open(o.Files, o.Dir)
	if err != nil {
		return r, err
	}
	d.SetFault(o.Fault)
	if r, err = look(d, o.Dir); err != nil {
		return r, err
	}
	if r.Recovered {
		return r, nil
	}
	if err := r.mayRecover(o.Stopped); err != nil {
		return r, fmt.Errorf("%s: %w: %w", o.Dir, ErrRecover, err)
	}
	if err := askLost(ctx, &r, o); err != nil {
		if r.Recovering { // some of its logs may end the old lineage already
			err = fmt.Errorf("%w; this directory was half recovered, so keep it aside, and join with an empty one instead", err)
		}
		return r, fmt.Errorf("%s: %w: %w", o.Dir, ErrRecover, err)
	}
	return r, r.recoverDir(d, o.Stopped)
}

// recoverDir writes the marks and the logs.
func (r *Remains) recoverDir(d *disk.Disk, stopped []replication.MemberID) error {
	dir, id := r.Dir, r.id
	if id.Recovering == ([16]byte{}) {
		rand.Read(id.Recovering[:]) // never fails
		id.Stopped = stopped
		for _, s := range r.Shards {
			id.Commits = append(id.Commits, s.Committed)
		}
		if err := replication.WriteIdentity(d, dir, id); err != nil {
			return err
		}
	}
	for i := range id.Shards {
		if err := replication.Recover(offline(d, dir, id), replication.ShardID(i+1)); err != nil {
			return err
		}
	}
	id.Ancestors = append(id.Ancestors, id.Lineage)
	id.Ancestors = id.Ancestors[max(0, len(id.Ancestors)-session.AncestorsMax):]
	id.Lineage, id.Recovered = id.Recovering, true
	id.Recovering, id.Stopped = [16]byte{}, nil
	return replication.WriteIdentity(d, dir, id)
}

// mayRecover returns why the directory cannot be recovered without these voters, or nil.
func (r *Remains) mayRecover(stopped []replication.MemberID) error {
	switch {
	case r.Out == replication.Superseded:
		return fmt.Errorf("a forced recovery goes on without its member %d: recover the member that it was made from, or one that has joined since", r.Member)
	case r.Out != "":
		return fmt.Errorf("its member %d is out of the ensemble (%s): choose the directory of another member", r.Member, r.Out)
	case r.Lineage == (session.Lineage{}):
		return errors.New("its ensemble has no lineage yet, by which members of the past could be told apart. It gets one soon after it is founded: restore the directories of a majority from a copy")
	}
	for _, s := range r.Shards {
		if m := s.Members; !slices.Contains(m.Voters, r.Member) && !slices.Contains(m.Learners, r.Member) {
			return fmt.Errorf("%w: member %d on shard %d: choose the directory of another member", replication.ErrNotPart, r.Member, s.Shard)
		}
	}
	lost := r.Voters()
	given := slices.Sorted(slices.Values(stopped))
	switch {
	case len(lost) == 0:
		return fmt.Errorf("member %d is the only voter, so no majority is lost: start it", r.Member)
	case slices.Contains(given, r.Member):
		return fmt.Errorf("member %d is the one to recover: name the other voters, %s", r.Member, replication.Listed(lost))
	case !slices.Equal(given, lost):
		return fmt.Errorf("the other voters are members %s, and %s are said to be stopped: stop all of them, and name all of them and nobody else", replication.Listed(lost), orNobody(given))
	}
	return nil
}

func orNobody(ids []replication.MemberID) string {
	if len(ids) == 0 {
		return "none"
	}
	return replication.Listed(ids)
}
