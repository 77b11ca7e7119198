package transfer

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"maps"
	"slices"
	"strconv"
	"sync"

	"github.com/vivarium-go/vivarium/internal/wire"
	"golang.org/x/sync/errgroup"
)

// differencesMax bounds the differences that are named.
const differencesMax = 10

// A Summary is what a comparison has seen of a side.
type Summary struct {
	Znodes     int // without ephemerals
	Ephemerals int
	Digest     [sha256.Size]byte // of paths, data and ACLs, without ephemerals
}

// String returns the summary in words.
func (s Summary) String() string {
	return fmt.Sprintf("%d znodes, sha256 %x, %d ephemerals left out",
		s.Znodes, s.Digest, s.Ephemerals)
}

// A Difference is a znode that is not the same on both sides.
type Difference struct {
	Path string // at the source, or at the target if only the target has it
	Why  string
}

// A comparison reads both sides. Nobody should write meanwhile.
type comparison struct {
	c *copier

	mu          sync.Mutex
	sums        [2]map[string]sum // of the source and of the target
	ephemerals  [2]int
	differences map[string]string // why, by name
	again       []string          // see Result.Again
}

// A sum stands for a znode.
type sum struct{ data, acl [sha256.Size]byte }

// A sight is a znode as one side shows it.
type sight struct {
	sum
	state state
	why   error // if it is unseen
	names []string
	made  int32 // children ever created
}

// bare leaves out the data and the ACL.
func (s *sight) bare() {
	if s.sum = (sum{}); errors.Is(s.why, errHidden) {
		s.state = seen
	}
}

type state int

const (
	absent state = iota
	seen
	ephemeral
	unseen
)

func (c *copier) compare(ctx context.Context, r *Result) error {
	m := &comparison{c: c, sums: [2]map[string]sum{{}, {}}, differences: make(map[string]string)}
	if err := each(ctx, []string{""}, m.visit); err != nil {
		return err
	}
	for i, to := range []*Summary{&r.Source, &r.Target} {
		*to = Summary{Znodes: len(m.sums[i]), Ephemerals: m.ephemerals[i], Digest: digest(m.sums[i])}
	}
	r.Different = len(m.differences)
	for _, name := range slices.Sorted(maps.Keys(m.differences)) {
		if len(r.Differences) == differencesMax {
			break
		}
		_, atSource := m.sums[0][name]
		path := c.from.at(name)
		if _, atTarget := m.sums[1][name]; atTarget && !atSource {
			path = c.to.at(name)
		}
		r.Differences = append(r.Differences, Difference{path, m.differences[name]})
	}
	slices.Sort(m.again)
	r.Again = m.again
	return nil
}

// visit compares one znode, and returns the children that either side has.
func (m *comparison) visit(ctx context.Context, name string) ([]string, error) {
	var sights [2]sight
	both, looking := errgroup.WithContext(ctx)
	for i, s := range []*side{m.c.from, m.c.to} {
		both.Go(func() (err error) { sights[i], err = s.look(looking, name); return err })
	}
	if err := both.Wait(); err != nil {
		return nil, err
	}
	from, to := &sights[0], &sights[1]
	if name == "" && m.c.cfg.RootStays {
		from.bare()
		to.bare()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, s := range sights {
		switch s.state {
		case seen:
			m.sums[i][name] = s.sum
		case ephemeral:
			m.ephemerals[i]++
		}
	}
	if why := difference(from, to); why != "" {
		if noted := m.c.noted(name); noted != nil && from.state != unseen && to.state != unseen {
			why += ": " + noted.Error()
		}
		m.differences[name] = why
	}
	if from.state == seen && to.state == seen && numbersAgain(from.names, to.made) {
		m.again = append(m.again, m.c.to.at(name))
	}
	names := slices.Concat(from.names, to.names)
	slices.Sort(names)
	return slices.Compact(names), nil
}

// difference returns "" if both sides are equal. For that an ephemeral is as good as none.
func difference(from, to *sight) string {
	switch {
	case from.state == unseen:
		return fmt.Sprintf("not readable at the source: %v", from.why)
	case to.state == unseen:
		return fmt.Sprintf("not readable at the target: %v", to.why)
	case from.state != seen && to.state != seen:
		return ""
	case to.state != seen:
		return "only at the source"
	case from.state != seen:
		return "only at the target"
	case from.data != to.data && from.acl != to.acl:
		return "other data and another ACL"
	case from.data != to.data:
		return "other data"
	case from.acl != to.acl:
		return "another ACL"
	}
	return ""
}

// look reads what a comparison needs.
func (s *side) look(ctx context.Context, name string) (sight, error) {
	names, stat, err := s.list(ctx, name)
	var z znode
	if err == nil {
		z, err = s.read(ctx, name)
	}
	var b *blockedError
	switch {
	case errors.Is(err, errAbsent):
		return sight{}, nil
	case errors.As(err, &b):
		return sight{state: unseen, why: err, names: names}, nil
	case err != nil:
		return sight{}, err
	case z.ephemeral:
		return sight{state: ephemeral}, nil
	}
	made := (stat.Cversion + stat.NumChildren) / 2 // Cversion counts creates and deletes
	return sight{sum: sumOf(&z), state: seen, names: names, made: made}, nil
}

func sumOf(z *znode) sum {
	var s sum
	h := sha256.New()
	if z.data != nil { // null differs from empty
		h.Write([]byte{1})
		h.Write(z.data)
	}
	h.Sum(s.data[:0])
	h.Reset()
	for _, a := range z.acl {
		_ = binary.Write(h, binary.BigEndian, int32(a.Perms))
		text(h, a.Scheme)
		text(h, a.ID)
	}
	h.Sum(s.acl[:0])
	return s
}

// text adds a text so that no two lists of texts give the same bytes.
func text(h hash.Hash, s string) {
	if s == wire.Null {
		_ = binary.Write(h, binary.BigEndian, int64(-1))
		return
	}
	_ = binary.Write(h, binary.BigEndian, int64(len(s)))
	h.Write([]byte(s))
}

// digest returns the sum of all znodes, in the order of their paths.
func digest(sums map[string]sum) (d [sha256.Size]byte) {
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		s := sums[name]
		text(h, name)
		h.Write(s.data[:])
		h.Write(s.acl[:])
	}
	h.Sum(d[:0])
	return d
}

// numbersAgain reports whether a name has a sequence number that the other side has yet to give.
func numbersAgain(names []string, made int32) bool {
	const digits = 10
	for _, name := range names {
		if len(name) < digits {
			continue
		}
		n, err := strconv.ParseUint(name[len(name)-digits:], 10, 64)
		if err == nil && n >= uint64(max(made, 0)) {
			return true
		}
	}
	return false
}
