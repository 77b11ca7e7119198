package backup

import (
	"errors"

	"github.com/vivarium-go/vivarium/embed"
)

// A pruner deletes what is in the target and not in the backup, children first. It deletes several
// znodes at once, as a Target creates them.
type pruner struct {
	*importer
	doomed []Znode // as Get has returned them, below one child of the root
	size   int     // what they add to batchBytesMax
}

func (i *importer) prune() error {
	p := pruner{importer: i}
	if _, err := p.below(i.o.As); err != nil {
		return err
	}
	return p.flush()
}

// below prunes what is below a path. It reports whether something is kept there.
func (p *pruner) below(path string) (kept bool, err error) {
	names, err := p.to.Children(p.ctx, path)
	if errors.Is(err, embed.ErrNoNode) {
		return false, nil // somebody else has deleted it
	}
	if err != nil {
		return false, err
	}
	for _, name := range names {
		child := moved("/"+name, "/", path)
		if p.noPlace(child) {
			continue
		}
		k, err := p.at(child)
		if err != nil {
			return false, err
		}
		kept = kept || k
	}
	return kept, nil
}

// at prunes a znode and what is below it. It reports whether the znode is kept.
func (p *pruner) at(path string) (kept bool, err error) {
	if err := p.ctx.Err(); err != nil {
		return false, err
	}
	if kept, err = p.below(path); err != nil || p.had[path] {
		return true, err
	}
	if kept {
		p.step(Kept, path)
		return true, nil
	}
	z, err := p.to.Get(p.ctx, path)
	switch {
	case errors.Is(err, embed.ErrNoNode):
		return false, nil
	case err != nil:
		return false, err
	case z.Owner != 0:
		p.step(Kept, path)
		return true, nil
	}
	z.Data, z.ACL = nil, nil // they may be large, and are not needed any more
	return false, p.doom(z)
}

// doom adds a znode to those that flush deletes.
func (p *pruner) doom(z Znode) error {
	size := 3 * len(z.Path) // a Target may need several operations for each
	if len(p.doomed) == batchMax || p.size+size > batchBytesMax || len(p.doomed) > 0 && top(p.doomed[0].Path) != top(z.Path) {
		if err := p.flush(); err != nil {
			return err
		}
	}
	p.doomed, p.size = append(p.doomed, z), p.size+size
	return nil
}

// flush deletes what is doomed. If others have changed something meanwhile, it goes through it one
// by one. What has got children is kept, and so is what is not the znode that was read.
func (p *pruner) flush() error {
	doomed := p.doomed
	p.doomed, p.size = p.doomed[:0], 0
	if len(doomed) == 0 {
		return nil
	}
	err := p.to.Delete(p.ctx, doomed)
	if err == nil {
		for _, z := range doomed {
			p.step(Deleted, z.Path)
		}
		return nil
	}
	if !errors.Is(err, embed.ErrNoNode) && !isOther(err) {
		return err
	}
	for i := range doomed {
		switch err := p.to.Delete(p.ctx, doomed[i:i+1]); {
		case err == nil:
			p.step(Deleted, doomed[i].Path)
		case isOther(err):
			p.step(Kept, doomed[i].Path)
		case !errors.Is(err, embed.ErrNoNode):
			return err
		}
	}
	return nil
}

// isOther reports whether a Delete has failed because others have changed what it should delete.
func isOther(err error) bool {
	return errors.Is(err, embed.ErrNotEmpty) || errors.Is(err, embed.ErrBadVersion)
}
