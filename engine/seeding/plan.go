package seeding

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/vivarium-go/vivarium/engine/backupfile"
	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/engine/replica"
	"github.com/vivarium-go/vivarium/internal/service"
	"github.com/vivarium-go/vivarium/replication"
	"github.com/vivarium-go/vivarium/tree"
)

const (
	// PartSize is when a part of a backup is full, in bytes of its records. A larger record is
	// a part of its own. All members must cut alike, as parts are counted: see cutter.
	PartSize = 512 << 10
	// recordMax bounds a record: a larger one does not fit in an entry of the log. No ensemble
	// has any.
	recordMax = command.DataMax + command.Overhead
)

// closeMax is how long closing the reader of Config.Seed may take.
const closeMax = time.Second

// errChanged says that Config.Seed gave something else than before.
var errChanged = errors.New("the backup is not what it was when it was first read")

// A plan is what must be known of a whole backup before anything of it is loaded.
type plan struct {
	source  command.Source
	shards  int        // of the new ensemble
	made    time.Time  // when the backup was made
	zxid    tree.Zxid  // the largest, of all shards of the backup
	lead    tree.Zxid  // likewise
	schemes []string   // that its ACLs may use
	sums    []shardSum // of what each shard gets
	// born has for each shard of the backup what it has of the znodes that every tree is born
	// with, in byte order.
	born [][]tree.Named
}

// A shardSum sums up what a shard gets of a backup, besides what it is born with, and says where its
// parts end. A later reading is compared with it part by part: the sum of the whole backup is known
// only after all parts but the last were loaded.
type shardSum struct {
	all  hash.Hash
	part int              // bytes of the part so far
	ends []command.Source // the sums up to the end of each part but the last
}

// add adds a znode, and reports whether a new part begins with it. What a shard is born with is in the
// first part, so no part is empty.
func (s *shardSum) add(path string, record []byte, most int) (begins bool) {
	if s.all == nil {
		s.all = sha256.New()
	}
	size := len(path) + len(record)
	if begins = s.part+size > most && (s.part > 0 || len(s.ends) == 0); begins {
		s.ends, s.part = append(s.ends, command.Source(s.all.Sum(nil))), 0
	}
	s.part += size
	fmt.Fprintf(s.all, "%d %d %s%s", len(path), len(record), path, record)
	return begins
}

// newPlan reads a whole backup for an ensemble with a number of shards, which gets it in parts of at
// most so many bytes. It refuses whatever could not be loaded.
func newPlan(from io.Reader, shards, most int) (*plan, error) {
	in, err := backupfile.NewReader(from)
	if err != nil {
		return nil, err
	}
	p := &plan{shards: shards, sums: make([]shardSum, shards), made: time.UnixMilli(in.Header.Time), born: make([][]tree.Named, len(in.Header.Shards))}
	for _, s := range in.Header.Shards {
		p.zxid, p.lead = max(p.zxid, s.Zxid), max(p.lead, s.Lead)
		p.schemes = append(p.schemes, s.Schemes...)
	}
	if p.zxid > math.MaxInt64/2 {
		return nil, fmt.Errorf("%w: after zxid %#x there are none left", backupfile.ErrCorrupt, uint64(p.zxid))
	}
	for record := []byte(nil); ; {
		rec, err := in.Next()
		if err == io.EOF {
			p.source = in.Sum()
			return p, nil
		}
		if err != nil {
			return nil, err
		}
		n := tree.Named{Path: rec.Path, Znode: rec.Znode}
		if isLeft(n) {
			continue
		}
		if err := tree.CheckRestore(n); err != nil {
			return nil, fmt.Errorf("%w: %w", backupfile.ErrCorrupt, err)
		}
		if record = command.AppendZnode(record[:0], n.Znode); len(record)+len(n.Path) > recordMax {
			return nil, fmt.Errorf("%w: znode %.100q has %d bytes", backupfile.ErrCorrupt, n.Path, len(record))
		}
		if isBorn(n.Path) {
			n.Data = slices.Clone(n.Data)
			p.born[rec.Shard-1] = append(p.born[rec.Shard-1], n)
		} else {
			p.sums[command.ShardOf(n.Path, shards)-1].add(n.Path, record, most)
		}
	}
}

// isLeft reports whether a znode stays behind: what says who the members are, and the ephemerals.
func isLeft(n tree.Named) bool { return n.Path == tree.ConfigPath || n.Owner != 0 }

// isBorn reports whether every shard has a path from the start.
func isBorn(path string) bool {
	return path == command.RootPath || path == command.RootPath+command.ZooKeeperName || path == command.QuotaPath
}

// begin returns the command that begins to load a shard.
func (p *plan) begin(wall time.Time) []byte {
	return command.EncodeLoad(command.Load{Source: p.source, Zxid: p.base(wall)}, wall.UnixMilli())
}

// base returns the zxid after which those of a shard begin. A backup from the future shows that a
// clock was wrong.
func (p *plan) base(wall time.Time) tree.Zxid {
	return replica.Above(max(p.zxid, replica.ZxidAt(p.made)), p.lead, wall)
}

// first returns what a shard gets of the znodes that it has already. If the backup has as many
// shards, each is as it was. Otherwise each shard gets the sum of all, as it may get the children
// of any.
func (p *plan) first(at replication.ShardID) []tree.Named {
	if len(p.born) == p.shards {
		return slices.Clone(p.born[at-1])
	}
	var sum []tree.Named
	for _, of := range p.born {
		for _, n := range of {
			i, found := slices.BinarySearchFunc(sum, n.Path, func(s tree.Named, path string) int { return strings.Compare(s.Path, path) })
			if !found {
				sum = slices.Insert(sum, i, n)
				continue
			}
			s := &sum[i]
			s.Czxid, s.Mzxid, s.Pzxid = max(s.Czxid, n.Czxid), max(s.Mzxid, n.Mzxid), max(s.Pzxid, n.Pzxid)
			s.Ctime, s.Mtime = max(s.Ctime, n.Ctime), max(s.Mtime, n.Mtime)
			s.Version, s.Aversion = max(s.Version, n.Version), max(s.Aversion, n.Aversion)
			s.Created = int32(min(int64(s.Created)+int64(n.Created), math.MaxInt32))
		}
	}
	return sum
}

// A cutter cuts what belongs to one shard of a backup into parts. The parts depend on nothing
// but the backup, the number of shards and the size. So whoever goes on after another member has
// the same parts.
type cutter struct {
	plan *plan
	in   *backupfile.Reader
	at   replication.ShardID
	most int // bytes of a part

	part   []tree.Named // the next part so far
	sum    shardSum
	record []byte // memory for encoding a znode
}

func newCutter(plan *plan, from io.Reader, at replication.ShardID, most int) (*cutter, error) {
	in, err := backupfile.NewReader(from)
	if err != nil {
		return nil, err
	}
	return &cutter{plan: plan, in: in, at: at, most: most, part: plan.first(at)}, nil
}

// next returns the next part, if it is what was planned. The last one comes only after the whole
// backup was read.
func (c *cutter) next() (part []tree.Named, last bool, err error) {
	for {
		rec, err := c.in.Next()
		switch {
		case err == io.EOF && c.in.Sum() != c.plan.source:
			return nil, false, errChanged
		case err == io.EOF:
			return c.part, true, nil
		case err != nil:
			return nil, false, err
		}
		n := tree.Named{Path: rec.Path, Znode: rec.Znode}
		if isLeft(n) || isBorn(n.Path) || command.ShardOf(n.Path, c.plan.shards) != c.at {
			continue
		}
		c.record = command.AppendZnode(c.record[:0], n.Znode)
		n.Data = slices.Clone(n.Data)
		if !c.sum.add(n.Path, c.record, c.most) {
			c.part = append(c.part, n)
			continue
		}
		planned, at := c.plan.sums[c.at-1].ends, len(c.sum.ends)
		if at > len(planned) || c.sum.ends[at-1] != planned[at-1] {
			return nil, false, errChanged
		}
		part, c.part = c.part, []tree.Named{n}
		return part, false, nil
	}
}

// openBackup opens Config.Seed. The reader is closed when ctx ends, so that a read that hangs ends
// too.
func openBackup(ctx context.Context, open func(context.Context) (io.ReadCloser, error)) (from *reader, done func(), err error) {
	r, err := service.Call(ctx, "Config.Seed", func(ctx context.Context) (io.ReadCloser, error) {
		r, err := open(ctx)
		if err == nil && r != nil && ctx.Err() != nil {
			_ = r.Close() // nobody may wait for it any more
		}
		return r, err
	})
	if err == nil && r == nil {
		err = errors.New("Config.Seed returned nothing")
	}
	if err != nil {
		return nil, nil, err
	}
	from = &reader{ctx, r}
	stop := context.AfterFunc(ctx, from.close)
	return from, func() {
		if stop() {
			from.close()
		}
	}, nil
}

// A reader is the reader that Config.Seed has returned. None of the reader's methods can hold up
// the node or end its process.
type reader struct {
	ctx  context.Context
	from io.ReadCloser
}

// Read is that of the reader. After an error, nobody uses p any more: the reader may still write to
// it.
func (s *reader) Read(p []byte) (int, error) {
	n, err := service.Call(s.ctx, "the reader of Config.Seed", func(context.Context) (int, error) { return s.from.Read(p) })
	if n < 0 || n > len(p) {
		return 0, fmt.Errorf("the reader of Config.Seed says that it has read %d bytes of %d", n, len(p))
	}
	return n, err
}

// close closes the reader, and waits for that briefly: it was only read.
func (s *reader) close() {
	ctx, cancel := context.WithTimeout(s.ctx, closeMax)
	defer cancel()
	_, _ = service.Call(ctx, "the reader of Config.Seed", func(context.Context) (any, error) { return nil, s.from.Close() })
}

// name returns the name of what is read, if it has one as an os.File has.
func (s *reader) name() string {
	file, ok := s.from.(interface{ Name() string })
	if !ok {
		return ""
	}
	name, _ := service.Call(s.ctx, "the reader of Config.Seed", func(context.Context) (string, error) { return file.Name(), nil })
	return name
}
