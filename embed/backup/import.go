package backup

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"

	"github.com/vivarium-go/vivarium/embed"
)

// Existing says what an import does with a znode that exists already.
type Existing int

const (
	// Fail ends the import.
	Fail Existing = iota
	// Skip leaves the znode as it is.
	Skip
	// Overwrite sets the data and the ACL. The znode keeps its mode.
	Overwrite
)

// Options say how to import. The zero value is usable.
type Options struct {
	Existing Existing
}

// A Report counts what an import has done.
type Report struct {
	Created, Overwritten int
	Existed              int // left as they were
	Ephemerals           int // left out
	Reserved             int // left out: the root, and what is at /zookeeper and below
}

// String returns the report in words.
func (r Report) String() string {
	return fmt.Sprintf("%d created, %d overwritten, %d existed, %d ephemerals left out", r.Created, r.Overwritten, r.Existed, r.Ephemerals)
}

// A Target is what an import writes to. Session returns one. Its methods are called one at a time.
type Target interface {
	// Create creates the znodes in one transaction, which are all below one child of the root. An
	// error that matches embed.ErrNodeExists says that none was created, because one exists.
	Create(ctx context.Context, znodes []Znode) error
	// Overwrite sets the data and the ACL of a znode.
	Overwrite(ctx context.Context, z Znode) error
}

const (
	batchMax      = 100
	batchBytesMax = 256 << 10
)

// Import creates the znodes, each parent before its children. It creates no parents that are not
// among them, and leaves out what the package doc says. It goes on until the first error; the
// report says what was done before.
//
// Errors: those of the sequence and of the Target, with the path. With a Session those are the ones
// of embed.Session.Multi, Set and SetACL, such as embed.ErrNoNode for a missing parent,
// embed.ErrNoAuth, embed.ErrNodeExists with Fail, and embed.ErrUnknownOutcome.
func Import(ctx context.Context, to Target, znodes iter.Seq2[Znode, error], o Options) (Report, error) {
	i := importer{ctx: ctx, to: to, o: o}
	for z, err := range znodes {
		if err == nil {
			err = ctx.Err()
		}
		if err == nil {
			err = i.add(z)
		}
		if err != nil {
			return i.report, err
		}
	}
	return i.report, i.flush()
}

// An importer is one import.
type importer struct {
	ctx    context.Context
	to     Target
	o      Options
	report Report
	batch  []Znode // below one child of the root
	size   int
}

func (i *importer) add(z Znode) error {
	switch {
	case reserved(z.Path):
		i.report.Reserved++
		return nil
	case z.Mode.IsEphemeral():
		i.report.Ephemerals++
		return nil
	}
	size := len(z.Path) + len(z.Data) + 100
	if len(i.batch) == batchMax || i.size+size > batchBytesMax || len(i.batch) > 0 && top(i.batch[0].Path) != top(z.Path) {
		if err := i.flush(); err != nil {
			return err
		}
	}
	i.batch, i.size = append(i.batch, z), i.size+size
	return nil
}

// top returns the child of the root that a path is at or below.
func top(path string) string {
	name, _, _ := strings.Cut(path[1:], "/")
	return name
}

// flush creates what was added. If some of it exists, it goes through it one by one.
func (i *importer) flush() error {
	batch := i.batch
	i.batch, i.size = i.batch[:0], 0
	if len(batch) == 0 {
		return nil
	}
	err := i.to.Create(i.ctx, batch)
	switch {
	case err == nil:
		i.report.Created += len(batch)
		return nil
	case !errors.Is(err, embed.ErrNodeExists) || i.o.Existing == Fail:
		return err
	}
	for _, z := range batch {
		if err := i.one(z); err != nil {
			return err
		}
	}
	return nil
}

func (i *importer) one(z Znode) error {
	err := i.to.Create(i.ctx, []Znode{z})
	switch {
	case err == nil:
		i.report.Created++
	case !errors.Is(err, embed.ErrNodeExists):
		return err
	case i.o.Existing == Overwrite:
		if err := i.to.Overwrite(i.ctx, z); err != nil {
			return err
		}
		i.report.Overwritten++
	default:
		i.report.Existed++
	}
	return nil
}

// Session returns the tree as a session sees it: a path of a backup is below the session's Root. To
// create znodes with any ACL, the session needs the permissions to do so; the superuser has them.
func Session(s *embed.Session) Target { return target{s} }

type target struct{ s *embed.Session }

func (t target) Create(ctx context.Context, znodes []Znode) error {
	ops := make([]embed.Op, len(znodes))
	for i, z := range znodes {
		ops[i] = embed.OpCreateWith(z.Path, z.Data, embed.CreateOptions{Mode: z.Mode, ACL: z.ACL, TTL: z.TTL})
	}
	_, err := t.s.Multi(ctx, ops...)
	return err
}

func (t target) Overwrite(ctx context.Context, z Znode) error {
	if _, err := t.s.Set(ctx, z.Path, z.Data, embed.AnyVersion); err != nil {
		return err
	}
	_, err := t.s.SetACL(ctx, z.Path, z.ACL, embed.AnyVersion)
	return err
}
