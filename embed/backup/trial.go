package backup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/vivarium-go/vivarium/embed"
)

// A trial is a Target that changes nothing. It shows another one as it would be after the changes.
type trial struct {
	Target  // for Sync
	created map[string]bool
	below   map[string][]string // of each parent, the names of what was created
	deleted map[string]bool
}

func newTrial(to Target) *trial {
	return &trial{to, make(map[string]bool), make(map[string][]string), make(map[string]bool)}
}

func (t *trial) Get(ctx context.Context, path string) (Znode, error) {
	switch {
	case t.deleted[path]:
		return Znode{}, fmt.Errorf("%s: %w", path, embed.ErrNoNode)
	case t.created[path]:
		return Znode{Path: path}, nil
	}
	return t.Target.Get(ctx, path)
}

func (t *trial) Children(ctx context.Context, path string) ([]string, error) {
	if t.deleted[path] {
		return nil, fmt.Errorf("%s: %w", path, embed.ErrNoNode)
	}
	var names []string
	if !t.created[path] {
		var err error
		if names, err = t.Target.Children(ctx, path); err != nil {
			return nil, err
		}
	}
	names = slices.Concat(names, t.below[path])
	return slices.DeleteFunc(names, func(name string) bool { return t.deleted[moved("/"+name, "/", path)] }), nil
}

func (t *trial) Create(ctx context.Context, znodes []Znode) error {
	batch := make(map[string]bool, len(znodes))
	for _, z := range znodes {
		_, err := t.Get(ctx, z.Path)
		switch {
		case err == nil || batch[z.Path]:
			return fmt.Errorf("%s: %w", z.Path, embed.ErrNodeExists)
		case !errors.Is(err, embed.ErrNoNode):
			return err
		}
		if parent, _ := split(z.Path); !batch[parent] {
			if err := t.mayHaveChildren(ctx, parent); err != nil {
				return fmt.Errorf("%s: %w", z.Path, err)
			}
		}
		batch[z.Path] = true
	}
	for path := range batch {
		parent, name := split(path)
		t.created[path], t.below[parent] = true, append(t.below[parent], name)
	}
	return nil
}

func (t *trial) mayHaveChildren(ctx context.Context, path string) error {
	if path == "/" {
		return nil
	}
	z, err := t.Get(ctx, path)
	if err == nil && z.Owner != 0 {
		err = embed.ErrNoChildrenForEphemerals
	}
	return err
}

func (t *trial) Overwrite(context.Context, Znode) error { return nil }

func (t *trial) Delete(ctx context.Context, znodes []Znode) error {
	for i, z := range znodes {
		path := z.Path
		names, err := t.Children(ctx, path)
		if err == nil && len(names) > 0 {
			err = fmt.Errorf("%s: %w", path, embed.ErrNotEmpty)
		}
		if err != nil {
			for _, z := range znodes[:i] {
				delete(t.deleted, z.Path)
			}
			return err
		}
		t.deleted[path] = true
	}
	return nil
}

// split returns the path of the parent, and the name.
func split(path string) (parent, name string) {
	at := strings.LastIndexByte(path, '/')
	return path[:max(at, 1)], path[at+1:]
}
