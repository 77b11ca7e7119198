package census

import (
	"cmp"
	"context"
	"crypto/subtle"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/vivarium-go/vivarium/engine/forest"
	"github.com/vivarium-go/vivarium/engine/outbox"
	"github.com/vivarium-go/vivarium/engine/replica"
	"github.com/vivarium-go/vivarium/replication"
	"github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/tree"
	"github.com/vivarium-go/vivarium/watch"
)

// A Census has the sessions of the ensemble for monitoring, as this node's replicas know them.
type Census struct {
	Sessions []SessionCensus // in the order of members and ids
}

// SessionCensus is a session of the ensemble.
type SessionCensus struct {
	ID         tree.SessionID
	Timeout    time.Duration
	Ephemerals []string // sorted

	member session.MemberID
}

// ErrNoSession means that no session with this id is open, as far as this node has applied.
var ErrNoSession = errors.New("no such session")

// Tables has the session tables of a node, for who looks at sessions of others. Its methods wait while
// a replica applies an entry, until ctx ends, or for Timeout if ctx has no deadline.
type Tables struct {
	Forest  forest.Forest
	Timeout time.Duration
	Over    func() error    // why the node is over for its users, or nil
	Done    <-chan struct{} // closed when it is
}

// Census lists the sessions and their ephemerals. It looks at all sessions, and waits while a
// replica applies an entry. Entries may be applied in between. When the node is over, it returns
// ErrFailed or ErrClosed.
func (t *Tables) Census(ctx context.Context) (Census, error) {
	c, err := t.count(ctx)
	if over := t.Over(); over != nil { // checked last: the tables may be gone by now
		return Census{}, over
	}
	return c, err
}

func (t *Tables) count(ctx context.Context) (c Census, err error) {
	err = t.Inspect(ctx, t.Forest.Home(), func(table *session.Table) {
		for r := range table.All() {
			c.Sessions = append(c.Sessions, SessionCensus{ID: r.ID, Timeout: r.Timeout, member: r.Origin})
		}
	})
	if err != nil {
		return Census{}, err
	}
	slices.SortFunc(c.Sessions, func(a, b SessionCensus) int { // not while no entry is applied
		return cmp.Or(cmp.Compare(a.member, b.member), cmp.Compare(a.ID, b.ID))
	})
	for _, r := range t.Forest {
		if err := t.ephemeralsOfAll(ctx, r, c.Sessions); err != nil {
			return Census{}, err
		}
	}
	for _, s := range c.Sessions {
		slices.Sort(s.Ephemerals)
	}
	return c, nil
}

// Inspect calls look with a shard's session table while no entry is applied there. It waits until
// ctx ends, or for the request timeout if ctx has no deadline.
func (t *Tables) Inspect(ctx context.Context, r *replica.Replica, look func(table *session.Table)) error {
	ctx, cancel := outbox.Bounded(ctx, t.Timeout)
	defer cancel()
	err := r.Inspect(ctx, t.Done, look)
	switch {
	case err == nil:
		return nil
	case t.Over() != nil:
		return t.Over()
	}
	return outbox.Lacking(ctx, err)
}

// censusPortion is how many sessions and ephemerals of a shard are collected before an entry may be
// applied in between.
const censusPortion = 1000

// ephemeralsOfAll adds the ephemerals that sessions have on a shard, unsorted.
func (t *Tables) ephemeralsOfAll(ctx context.Context, r *replica.Replica, all []SessionCensus) error {
	for len(all) > 0 {
		err := t.Inspect(ctx, r, func(table *session.Table) {
			for n := 0; n < censusPortion && len(all) > 0; all = all[1:] {
				owned := table.Owned(all[0].ID)
				all[0].Ephemerals = append(all[0].Ephemerals, owned...)
				n += 1 + len(owned)
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Count returns the numbers of a Census, at a lower cost. On each shard it counts at one moment.
func (t *Tables) Count(ctx context.Context) (sessions, ephemerals int, err error) {
	sessions, ephemerals, err = t.numbers(ctx)
	if over := t.Over(); over != nil { // checked last, as in Census
		return 0, 0, over
	}
	return sessions, ephemerals, err
}

func (t *Tables) numbers(ctx context.Context) (sessions, ephemerals int, err error) {
	for _, r := range t.Forest {
		err := t.Inspect(ctx, r, func(table *session.Table) {
			if r == t.Forest.Home() {
				sessions = table.Len()
			}
			ephemerals += table.CountEphemerals()
		})
		if err != nil {
			return 0, 0, err
		}
	}
	return sessions, ephemerals, nil
}

// Znodes counts the znodes, including those that exist from birth.
func (t *Tables) Znodes() (n int) {
	for _, r := range t.Forest {
		n += r.Figures().Znodes - forest.FromBirth - 1 // the root, too, is on every shard
	}
	return n + forest.FromBirth + 1
}

// bornBytes is the size of the znodes that exist from birth.
const bornBytes = len("/" + "/zookeeper" + "/zookeeper/quota" + "/zookeeper/config")

// Size returns the bytes of the paths and data of all znodes.
func (t *Tables) Size() (n int) {
	for _, r := range t.Forest {
		n += r.Figures().Size - bornBytes
	}
	return n + bornBytes
}

// Proposals returns the sizes of the proposals that this node has applied on the first shard.
func (t *Tables) Proposals() *replica.Sizes { return &t.Forest.Home().Sizes }

// Visible returns the newest transaction that reads show. Zxids of several shards do not compare,
// so then it is the largest.
func (t *Tables) Visible() (z tree.Zxid) {
	for _, r := range t.Forest {
		z = max(z, r.Figures().Zxid)
	}
	return z
}

// A SessionRecord is what this node knows of a session of the ensemble.
type SessionRecord struct {
	ID         tree.SessionID
	Member     replication.MemberID // whose node speaks for it
	Timeout    time.Duration
	Remote     bool            // a client's, which may go on at another member
	Identities []tree.Identity // what it has authenticated as; shared, do not change
	Ephemerals int
}

// Sessions returns up to n sessions whose end is not decided, in the order of their ids and after
// the given one, and whether there are more. Errors are those of Census.
func (t *Tables) Sessions(ctx context.Context, after tree.SessionID, n int) (list []SessionRecord, more bool, err error) {
	var ids []tree.SessionID
	err = t.Inspect(ctx, t.Forest.Home(), func(table *session.Table) {
		for r := range table.All() {
			if r.ID > after && table.Usable(r.ID, r.Origin) == nil {
				ids = append(ids, r.ID)
			}
		}
	})
	if err != nil {
		return nil, false, err
	}
	slices.Sort(ids) // not while no entry is applied
	more = len(ids) > n
	for part := range slices.Chunk(ids[:min(n, len(ids))], censusPortion) {
		err := t.Inspect(ctx, t.Forest.Home(), func(table *session.Table) {
			for _, id := range part {
				if r, found := table.Get(id); found && table.Usable(id, r.Origin) == nil {
					list = append(list, recordOf(&r))
				}
			}
		})
		if err != nil {
			return nil, false, err
		}
	}
	if over := t.Over(); over != nil { // checked last: the tables may be gone by now
		return nil, false, over
	}
	return list, more, t.countOwned(ctx, list)
}

// countOwned adds how many ephemerals sessions have.
func (t *Tables) countOwned(ctx context.Context, list []SessionRecord) error {
	for _, r := range t.Forest {
		for part := range slices.Chunk(list, censusPortion) {
			err := t.Inspect(ctx, r, func(table *session.Table) {
				for i := range part {
					part[i].Ephemerals += table.Owns(part[i].ID)
				}
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func recordOf(r *session.Record) SessionRecord {
	return SessionRecord{ID: r.ID, Member: replication.MemberID(r.Origin), Timeout: r.Timeout, Remote: r.Remote(), Identities: r.Identities}
}

// Session returns a session and its ephemerals, sorted. It returns ErrNoSession if there is
// none or its end is decided. Other errors are those of Census.
func (t *Tables) Session(ctx context.Context, id tree.SessionID) (SessionRecord, []string, error) {
	r, err := t.Usable(ctx, id)
	if err != nil {
		return SessionRecord{}, nil, err
	}
	var paths []string
	for _, shard := range t.Forest {
		err := t.Inspect(ctx, shard, func(table *session.Table) { paths = append(paths, table.Owned(id)...) })
		if err != nil {
			return SessionRecord{}, nil, err
		}
	}
	slices.Sort(paths)
	s := recordOf(&r)
	s.Ephemerals = len(paths)
	return s, paths, nil
}

// Usable returns the record of a session whose end is not decided.
func (t *Tables) Usable(ctx context.Context, id tree.SessionID) (r session.Record, err error) {
	found := false
	err = t.Inspect(ctx, t.Forest.Home(), func(table *session.Table) {
		if r, found = table.Get(id); found {
			found = table.Usable(id, r.Origin) == nil
		}
	})
	switch over := t.Over(); {
	case over != nil: // checked last: the tables may be gone by now
		err = over
	case err == nil && !found:
		err = ErrNoSession
	}
	return r, err
}

// Watches looks at up to n watches of this node's sessions on each shard, and returns what they
// watch, in the order of the paths. It reports whether there are more. A watch on several shards
// counts once. Watches of connections are not among them.
func (t *Tables) Watches(n int) (list []watch.Watched, more bool) {
	all := make(map[string]watch.Watched)
	for _, r := range t.Forest {
		found, rest := r.Watches.Streams(n)
		more = more || rest
		for _, w := range found {
			was := all[w.Path]
			all[w.Path] = watch.Watched{Path: w.Path, Once: max(w.Once, was.Once), Persistent: max(w.Persistent, was.Persistent), Recursive: max(w.Recursive, was.Recursive)}
		}
	}
	for _, path := range slices.Sorted(maps.Keys(all)) {
		list = append(list, all[path])
	}
	return list, more
}

// WatchedPaths counts the paths that connections watch, as ZooKeeper counts them: paths with a data
// watch, on each shard.
func (t *Tables) WatchedPaths() (n int) {
	for _, r := range t.Forest {
		n += r.Watches.Watched()
	}
	return n
}

// HasPassword reports whether this member knows a session, and whether it is a remote one with that
// password.
func (t *Tables) HasPassword(ctx context.Context, id tree.SessionID, password [16]byte) (known, right bool, err error) {
	err = t.Inspect(ctx, t.Forest.Home(), func(table *session.Table) {
		var r session.Record
		r, known = table.Get(id)
		right = known && r.Remote() && subtle.ConstantTimeCompare(r.Password[:], password[:]) == 1
	})
	return known, right, cmp.Or(t.Over(), err) // the tables may be gone by now
}
