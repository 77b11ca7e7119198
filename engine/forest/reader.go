package forest

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/engine/outbox"
	"github.com/vivarium-go/vivarium/engine/replica"
	"github.com/vivarium-go/vivarium/tree"
)

// A Reader reads all shards with some identities: as they are now or, in a Still, as they were at
// one moment. Its methods have the names of Session's. They do not check whether the node or a
// session is over.
type Reader struct {
	Forest
	Who  []tree.Identity
	pins []*tree.Pin // indexed by ShardID - 1; nil unless a Still has the reader
}

// on returns the reader's view of one shard.
func (r Reader) on(shard *replica.Replica) tree.View {
	if r.pins != nil {
		return r.pins[shard.Shard-1].As(r.Who)
	}
	return shard.Tree().As(r.Who)
}

// exists is Tree.Exists on one shard. It shares no interface with on, because then each path would
// be allocated.
func (r Reader) exists(shard *replica.Replica, path string) (tree.Stat, bool) {
	if r.pins != nil {
		return r.pins[shard.Shard-1].Exists(path)
	}
	return shard.Tree().Exists(path)
}

// View returns the reader's view of the shard of a path.
func (r Reader) View(path string) tree.View { return r.on(r.At(path)) }

// whole adds to the Stat that a read has shown what the znode's other shards have, if it is on all.
func (r Reader) whole(path string, stat tree.Stat, err error) tree.Stat {
	if err != nil || !r.Spans(path) {
		return stat
	}
	for _, shard := range r.Forest[1:] {
		other, _ := r.exists(shard, path)
		stat = sum(path, stat, other)
	}
	return stat
}

// find looks for a znode. It copies nothing of it.
func (r Reader) find(path string) (f Finding, err error) {
	f.path = path
	if f.Found, err = r.View(path).Find(path); err != nil || !r.Spans(path) {
		return f, err
	}
	for _, shard := range r.Forest[1:] {
		other, err := r.on(shard).Find(path)
		if err != nil {
			return f, err
		}
		f.others = append(f.others, other)
	}
	return f, nil
}

// Get is Session.Get.
func (r Reader) Get(path string) ([]byte, tree.Stat, error) {
	data, stat, err := r.View(path).Get(path)
	return data, r.whole(path, stat, err), err
}

// Exists is Session.Exists.
func (r Reader) Exists(path string) (tree.Stat, bool, error) {
	stat, ok, err := r.View(path).Exists(path)
	return r.whole(path, stat, err), ok, err
}

// ACL is Session.ACL.
func (r Reader) ACL(path string) ([]tree.ACL, tree.Stat, error) {
	acl, stat, err := r.View(path).ACL(path)
	return acl, r.whole(path, stat, err), err
}

// Children is Session.Children.
func (r Reader) Children(path string) (names []string, stat tree.Stat, err error) {
	f, err := r.find(path)
	if err == nil {
		names, stat = f.children(), f.stat()
	}
	return names, stat, err
}

// Page is Session.Page.
func (r Reader) Page(path, after string, n int) ([]string, error) {
	if !r.Spans(path) {
		return r.View(path).Page(path, after, n)
	}
	f, err := r.find(path)
	if err != nil {
		return nil, err
	}
	names := f.children()
	i, found := slices.BinarySearch(names, after)
	if found {
		i++
	}
	return names[i:min(i+n, len(names))], nil
}

// Descendants is Session.Descendants.
func (r Reader) Descendants(path string) (int, error) {
	n, err := r.View(path).Descendants(path)
	if err != nil || !r.Reaches(path) {
		return n, err
	}
	for _, shard := range r.Forest[1:] { // these have some of them too
		below := path
		if path != command.RootPath {
			below = command.QuotaPath
		}
		more, err := r.on(shard).Descendants(below)
		if err != nil {
			return 0, err
		}
		if n += more; path == command.RootPath {
			n -= FromBirth
		}
	}
	return n, nil
}

// walkKeeps is what each shard may keep for a walk of what is replaced meanwhile, beside as much as it
// has. Clients walk too, and may leave the next portion for a minute.
const walkKeeps = 64 << 20

// Walk calls fn with a znode and what is below it and may be read, depth levels or all with zero, as
// they were at one zxid. It ends when fn returns false or ctx ends, and returns the zxid.
func (r Reader) Walk(ctx context.Context, path string, depth int, fn func(z tree.Zxid, path string, f tree.Found) bool) (tree.Zxid, error) {
	if r.Reaches(path) {
		return 0, fmt.Errorf("%w: what is below %s is on several, each with zxids of its own", ErrCrossShard, path)
	}
	pin := r.At(path).Tree().PinWithin(walkKeeps)
	defer pin.Release()
	err := pin.As(r.Who).Walk(path, depth, func(path string, f tree.Found) bool {
		return ctx.Err() == nil && fn(pin.Zxid(), path, f)
	})
	if err == tree.ErrPinLost {
		err = fmt.Errorf("%w: this walk is over, begin it again: %w", outbox.ErrUnavailable, err)
	}
	return pin.Zxid(), cmp.Or(ctx.Err(), err)
}
