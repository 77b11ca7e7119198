package engine

import (
	"bytes"
	"fmt"

	"github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/storage"
	"github.com/vivarium-go/vivarium/tree"
)

// loadImage reads a whole image into memory, and refuses one that no machine of this build wrote.
func loadImage(image *storage.Image, schemes tree.Schemes) (*tree.Tree, *session.Table, tree.Zxid, error) {
	if image.Applied() == 0 {
		return tree.New(schemes), session.NewTable(), 0, nil
	}
	l := loading{znodes: tree.NewLoader(schemes), table: session.NewTable()}
	if err := image.Load(l.record); err != nil {
		return nil, nil, 0, err
	}
	if !l.hasState {
		return nil, nil, 0, fmt.Errorf("%w: the record %q is missing", errMalformed, stateKey)
	}
	t, err := l.znodes.Finish(l.zxid)
	if err != nil {
		return nil, nil, 0, err
	}
	return t, l.table, l.zxid, l.table.Verify()
}

// loading is what was read of an image so far.
type loading struct {
	znodes   *tree.Loader
	table    *session.Table
	zxid     tree.Zxid
	hasState bool
}

func (l *loading) record(t storage.Table, key, value []byte) error {
	switch t {
	case storage.Znodes:
		return l.znode(string(key), value)
	case storage.Sessions:
		return l.session(key, value)
	case storage.Origins:
		return l.origin(key, value)
	}
	return l.state(string(key), value)
}

func (l *loading) znode(path string, value []byte) error {
	z, err := decodeZnode(value)
	if err != nil {
		return fmt.Errorf("znode %q: %w", path, err)
	}
	if z.Owner != 0 {
		l.table.Track([]tree.Change{{Type: tree.Created, Path: path, Owner: z.Owner}})
	}
	return l.znodes.Add(path, z)
}

func (l *loading) session(key, value []byte) error {
	r, err := decodeSession(value)
	if err == nil && !bytes.Equal(key, idKey(uint64(r.ID))) {
		err = errMalformed
	}
	if err != nil {
		return fmt.Errorf("session %x: %w", key, err)
	}
	return l.table.LoadRecord(r)
}

func (l *loading) origin(key, value []byte) error {
	o, err := decodeOrigin(value)
	if err == nil && !bytes.Equal(key, idKey(uint64(o.Member))) {
		err = errMalformed
	}
	if err != nil {
		return fmt.Errorf("origin %x: %w", key, err)
	}
	l.table.LoadOrigin(o)
	return nil
}

func (l *loading) state(key string, value []byte) (err error) {
	if key != stateKey {
		return fmt.Errorf("%w: a record %q that this build does not know", errMalformed, key)
	}
	l.hasState = true
	l.zxid, err = decodeState(value)
	return err
}
