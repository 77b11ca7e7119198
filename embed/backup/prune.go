package backup

import (
	"errors"

	"github.com/vivarium-go/vivarium/embed"
)

// A pruner deletes what is in the target and not in the backup, children first. It deletes several
// znodes at once, as a Target creates them.
type pruner struct {
	*importer
	doomed []string // below one child of the root
	size   int      // bytes of these paths
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
		if reserved(child) {
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
	if !kept {
		z, err := p.to.Get(p.ctx, path)
		if errors.Is(err, embed.ErrNoNode) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		kept = z.Owner != 0
	}
	if kept {
		p.step(Kept, path)
		return true, nil
	}
	if len(p.doomed) == batchMax || p.size+len(path) > batchBytesMax || len(p.doomed) > 0 && top(p.doomed[0]) != top(path) {
		if err := p.flush(); err != nil {
			return false, err
		}
	}
	p.doomed, p.size = append(p.doomed, path), p.size+len(path)
	return false, nil
}

// flush deletes what is doomed. If others have changed something meanwhile, it goes through it one
// by one. What has got children is kept.
func (p *pruner) flush() error {
	doomed := p.doomed
	p.doomed, p.size = p.doomed[:0], 0
	if len(doomed) == 0 {
		return nil
	}
	err := p.to.Delete(p.ctx, doomed)
	if err == nil {
		for _, path := range doomed {
			p.step(Deleted, path)
		}
		return nil
	}
	if !errors.Is(err, embed.ErrNoNode) && !errors.Is(err, embed.ErrNotEmpty) {
		return err
	}
	for _, path := range doomed {
		switch err := p.to.Delete(p.ctx, []string{path}); {
		case err == nil:
			p.step(Deleted, path)
		case errors.Is(err, embed.ErrNotEmpty):
			p.step(Kept, path)
		case !errors.Is(err, embed.ErrNoNode):
			return err
		}
	}
	return nil
}
