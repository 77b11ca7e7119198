package engine

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/engine/replica"
	"github.com/vivarium-go/vivarium/tree"
)

// A reader reads all shards with some identities: as they are now or, in a Still, as they were at
// one moment. Its methods have the names of Session's. They do not check whether the node or a
// session is over.
type reader struct {
	engine *Engine
	who    []tree.Identity
	pins   []*tree.Pin // indexed by ShardID - 1; nil unless a Still has the reader
}

// on returns the reader's view of one shard.
func (r reader) on(shard *replica.Replica) tree.View {
	if r.pins != nil {
		return r.pins[shard.Shard-1].As(r.who)
	}
	return shard.Tree().As(r.who)
}

// exists is Tree.Exists on one shard. It shares no interface with on, because then each path would
// be allocated.
func (r reader) exists(shard *replica.Replica, path string) (tree.Stat, bool) {
	if r.pins != nil {
		return r.pins[shard.Shard-1].Exists(path)
	}
	return shard.Tree().Exists(path)
}

func (r reader) view(path string) tree.View { return r.on(r.engine.at(path)) }

// whole adds to the Stat that a read has shown what the znode's other shards have, if it is on all.
func (r reader) whole(path string, stat tree.Stat, err error) tree.Stat {
	if err != nil || !r.engine.spans(path) {
		return stat
	}
	for _, shard := range r.engine.shards[1:] {
		other, _ := r.exists(shard, path)
		stat = sum(path, stat, other)
	}
	return stat
}

// find looks for a znode. It copies nothing of it.
func (r reader) find(path string) (f finding, err error) {
	f.path = path
	if f.Found, err = r.view(path).Find(path); err != nil || !r.engine.spans(path) {
		return f, err
	}
	for _, shard := range r.engine.shards[1:] {
		other, err := r.on(shard).Find(path)
		if err != nil {
			return f, err
		}
		f.others = append(f.others, other)
	}
	return f, nil
}

func (r reader) Get(path string) ([]byte, tree.Stat, error) {
	data, stat, err := r.view(path).Get(path)
	return data, r.whole(path, stat, err), err
}

func (r reader) Exists(path string) (tree.Stat, bool, error) {
	stat, ok, err := r.view(path).Exists(path)
	return r.whole(path, stat, err), ok, err
}

func (r reader) ACL(path string) ([]tree.ACL, tree.Stat, error) {
	acl, stat, err := r.view(path).ACL(path)
	return acl, r.whole(path, stat, err), err
}

func (r reader) Children(path string) (names []string, stat tree.Stat, err error) {
	f, err := r.find(path)
	if err == nil {
		names, stat = f.children(), f.stat()
	}
	return names, stat, err
}

func (r reader) Page(path, after string, n int) ([]string, error) {
	if !r.engine.spans(path) {
		return r.view(path).Page(path, after, n)
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

func (r reader) Descendants(path string) (int, error) {
	n, err := r.view(path).Descendants(path)
	if err != nil || !r.engine.reaches(path) {
		return n, err
	}
	for _, shard := range r.engine.shards[1:] { // these have some of them too
		below := path
		if path != command.RootPath {
			below = command.QuotaPath
		}
		more, err := r.on(shard).Descendants(below)
		if err != nil {
			return 0, err
		}
		if n += more; path == command.RootPath {
			n -= fromBirth
		}
	}
	return n, nil
}

// walkKeeps is what each shard may keep for a walk of what is replaced meanwhile, beside as much as it
// has. Clients walk too, and may leave the next portion for a minute.
const walkKeeps = 64 << 20

// walk calls fn with a znode and what is below it and may be read, depth levels or all with zero, as
// they were at one zxid. It ends when fn returns false or ctx ends, and returns the zxid.
func (r reader) walk(ctx context.Context, path string, depth int, fn func(z tree.Zxid, path string, f tree.Found) bool) (tree.Zxid, error) {
	if r.engine.reaches(path) {
		return 0, fmt.Errorf("%w: what is below %s is on several, each with zxids of its own", ErrCrossShard, path)
	}
	pin := r.engine.at(path).Tree().PinWithin(walkKeeps)
	defer pin.Release()
	err := pin.As(r.who).Walk(path, depth, func(path string, f tree.Found) bool {
		return ctx.Err() == nil && fn(pin.Zxid(), path, f)
	})
	if err == tree.ErrPinLost {
		err = fmt.Errorf("%w: this walk is over, begin it again: %w", ErrUnavailable, err)
	}
	return pin.Zxid(), cmp.Or(ctx.Err(), err)
}
