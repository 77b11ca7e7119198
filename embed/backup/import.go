package backup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/tree"
)

// ErrMissing says that a backup was asked for a znode that it does not have.
var ErrMissing = errors.New("the backup does not have this znode")

// Existing says what an import does with a znode that exists already.
type Existing int

const (
	// Fail ends the import.
	Fail Existing = iota
	// Skip leaves the znode as it is.
	Skip
	// Overwrite sets the ACL and then the data, if one of them differs. If the ACL is refused, the
	// data stays as well. The znode keeps its mode. An ephemeral, which belongs to a session, is
	// left as it is.
	Overwrite
)

// Options say how to import. The zero value is usable.
type Options struct {
	// Path limits the import to this znode and those below it. Empty means all znodes.
	Path string
	// As is the path in the target of the znode that the backup has at Path. What is below Path
	// comes below As. The parent of As must exist. Empty means Path.
	As       string
	Existing Existing
	// Prune also deletes what is below As and not in the backup, after everything else. It never
	// deletes an ephemeral, nor a znode above one: these are Kept. Nor does it touch /zookeeper. It
	// needs Skip or Overwrite, and a backup that has the znode at Path. Lines need their end, or the
	// error is ErrNoEnd. What others write to or create anew after Prune has read it is Kept too. It
	// keeps the paths of the imported znodes in memory.
	Prune bool
	// DryRun makes the import change nothing. It takes the same steps and returns the same report
	// as the import would, and the same error for a znode that exists or a parent that is missing.
	// It does not try permissions, quotas and limits. It keeps the paths of the znodes that it
	// would create in memory.
	DryRun bool
	// Step is called after each step, if it is not nil. It must not call the Target.
	Step func(Step)
}

// A Step is what an import has done with one znode of the target.
type Step struct {
	Action Action
	Path   string // in the target
}

// An Action is the kind of a Step.
type Action int

const (
	// Created says that the znode was created.
	Created Action = iota
	// Overwritten says that the data or the ACL differed, and were set.
	Overwritten
	// Deleted says that Prune has deleted the znode.
	Deleted
	// Kept says that the znode was neither overwritten nor deleted, because it is an ephemeral or
	// above something that is kept, or because others have changed it meanwhile.
	Kept
)

// String returns the action in a word.
func (a Action) String() string {
	return [...]string{"create", "overwrite", "delete", "keep"}[a]
}

// A Report counts what an import has done.
type Report struct {
	Created, Overwritten int
	Existed              int // left as they were: with Skip, or because they did not differ
	Deleted, Kept        int // see Action
	Ephemerals           int // of the backup: left out
	Reserved             int // of the backup, left out: the root, and /zookeeper and what is below
	NoPlace              int // of the backup, left out: what would come to /zookeeper and below it
	// NoEnd says that the znodes were Lines without an end. So nobody knows whether some are missing.
	NoEnd bool
}

// String returns the report in words.
func (r Report) String() string {
	text := fmt.Sprintf("%d created, %d overwritten, %d existed, %d deleted, %d kept, %d ephemerals left out",
		r.Created, r.Overwritten, r.Existed, r.Deleted, r.Kept, r.Ephemerals)
	if r.NoPlace > 0 {
		text += fmt.Sprintf(", %d left out because /zookeeper is the ensemble's own", r.NoPlace)
	}
	return text
}

// Bounds of a transaction. A znode that is larger comes alone.
const (
	batchMax      = 100
	batchBytesMax = 256 << 10
)

// sizeOf returns about how many bytes the create of a znode takes in any protocol.
func sizeOf(z *Znode) int {
	const fixed, entry = 100, 12 // the numbers, and the lengths of texts
	size := fixed + len(z.Path) + len(z.Data)
	for i := range z.ACL {
		size += entry + len(z.ACL[i].Scheme) + len(z.ACL[i].ID)
	}
	return size
}

// Import creates the znodes, each parent before its children. It creates no parents that are not
// among them, and leaves out what the package doc says. It goes on until the first error; the
// report says what was done before. With Skip or Overwrite, the same call goes on with an import
// that ended at any point.
//
// Errors: embed.ErrInvalidPath and embed.ErrInvalidArgument for Options that cannot be; ErrMissing;
// ErrNoEnd, with Prune only, after everything else is done and before anything is deleted; those
// of the sequence and of the Target, with the path. With a Session those are the ones of
// embed.Session.Multi, Set, SetACL, Get, ACL, Children and Sync, such as embed.ErrNoNode for a
// missing parent, embed.ErrNoAuth, embed.ErrNodeExists with Fail, and embed.ErrUnknownOutcome.
func Import(ctx context.Context, to Target, znodes iter.Seq2[Znode, error], o Options) (Report, error) {
	if err := o.check(to.Root()); err != nil {
		return Report{}, err
	}
	if err := to.Sync(ctx, o.As); err != nil {
		return Report{}, err
	}
	if o.DryRun {
		to = newTrial(to)
	}
	i := importer{ctx: ctx, to: to, o: o}
	if o.Prune {
		i.had = make(map[string]bool)
	}
	for z, err := range Below(znodes, o.Path) {
		if errors.Is(err, ErrNoEnd) {
			i.report.NoEnd = true
			continue // to the end of the sequence
		}
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
	if o.Prune && !i.had[o.As] {
		return i.report, fmt.Errorf("%s: %w", o.Path, ErrMissing)
	}
	err := i.flush()
	switch {
	case err != nil || !o.Prune:
		return i.report, err
	case i.report.NoEnd:
		return i.report, fmt.Errorf("nothing was deleted: %w", ErrNoEnd)
	}
	return i.report, i.prune()
}

// check replaces what is empty, and refuses what cannot be below a root.
func (o *Options) check(root string) error {
	if o.Path == "" {
		o.Path = "/"
	}
	if o.As == "" {
		o.As = o.Path
	}
	for _, path := range []string{o.Path, o.As} {
		if err := tree.ValidatePath(path); err != nil {
			return err
		}
	}
	for _, path := range []string{o.Path, moved(o.As, "/", root)} {
		if reserved(path) {
			return fmt.Errorf("%s: %w: an import leaves out what belongs to the ensemble", path, embed.ErrInvalidPath)
		}
	}
	switch {
	case o.Existing < Fail || o.Existing > Overwrite:
		return fmt.Errorf("%w: Options.Existing is %d", embed.ErrInvalidArgument, o.Existing)
	case o.Prune && o.Existing == Fail:
		return fmt.Errorf("%w: Options.Prune is set and Existing is Fail, so there is nothing to prune", embed.ErrInvalidArgument)
	}
	return nil
}

// An importer is one import.
type importer struct {
	ctx    context.Context
	to     Target
	o      Options
	report Report
	had    map[string]bool // the paths in the target of all that the backup has; nil without Prune
	batch  []Znode         // below one child of the root
	size   int
}

// step counts and reports a step.
func (i *importer) step(a Action, path string) {
	switch a {
	case Created:
		i.report.Created++
	case Overwritten:
		i.report.Overwritten++
	case Deleted:
		i.report.Deleted++
	case Kept:
		i.report.Kept++
	}
	if i.o.Step != nil {
		i.o.Step(Step{a, path})
	}
}

func (i *importer) add(z Znode) error {
	if reserved(z.Path) {
		i.report.Reserved++
		return nil
	}
	z.Path = moved(z.Path, i.o.Path, i.o.As)
	if i.had != nil {
		i.had[z.Path] = true
	}
	switch {
	case z.Path == "/":
		i.report.Reserved++
		return nil
	case i.noPlace(z.Path):
		i.report.NoPlace++
		return nil
	case z.Mode.IsEphemeral():
		i.report.Ephemerals++
		return nil
	}
	size := sizeOf(&z)
	if len(i.batch) == batchMax || i.size+size > batchBytesMax || len(i.batch) > 0 && top(i.batch[0].Path) != top(z.Path) {
		if err := i.flush(); err != nil {
			return err
		}
	}
	i.batch, i.size = append(i.batch, z), i.size+size
	return nil
}

// noPlace reports whether a path in the target belongs to the ensemble itself.
func (i *importer) noPlace(path string) bool { return reserved(moved(path, "/", i.to.Root())) }

// moved returns where a path at or below one path is, when that is at another.
func moved(path, from, to string) string {
	rest := strings.TrimPrefix(strings.TrimPrefix(path, from), "/")
	switch {
	case rest == "":
		return to
	case to == "/":
		return to + rest
	}
	return to + "/" + rest
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
		for _, z := range batch {
			i.step(Created, z.Path)
		}
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

// one creates or overwrites a znode. It looks again if others create and delete it meanwhile.
func (i *importer) one(z Znode) error {
	for {
		if err := i.ctx.Err(); err != nil {
			return err
		}
		now, err := i.to.Get(i.ctx, z.Path)
		if errors.Is(err, embed.ErrNoNode) {
			if err = i.to.Create(i.ctx, []Znode{z}); err == nil {
				i.step(Created, z.Path)
			}
			if errors.Is(err, embed.ErrNodeExists) {
				continue
			}
			return err
		}
		switch {
		case err != nil:
			return err
		case i.o.Existing == Skip || sameContent(&now, &z):
			i.report.Existed++
			return nil
		case now.Owner != 0:
			i.step(Kept, z.Path)
			return nil
		}
		if err = i.to.Overwrite(i.ctx, z); err == nil {
			i.step(Overwritten, z.Path)
		}
		if !errors.Is(err, embed.ErrNoNode) {
			return err
		}
	}
}

func sameContent(a, b *Znode) bool {
	return bytes.Equal(a.Data, b.Data) && (a.Data == nil) == (b.Data == nil) && slices.Equal(a.ACL, b.ACL)
}
