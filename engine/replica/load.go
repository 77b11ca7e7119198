package replica

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/replication"
	"github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/storage"
	"github.com/vivarium-go/vivarium/tree"
)

// Load reads an image into memory. The node calls it before the shard starts. From then on the
// image belongs to the Replica; Drop closes it.
func (r *Replica) Load(image *storage.Image) error {
	r.image, r.batch = image, image.NewBatch()
	l, err := loadImage(r.image, r.schemes, r.levelMax())
	if errors.Is(err, command.ErrMalformed) {
		err = fmt.Errorf("the image holds what this build does not write: %w; %s", err, replication.WayOut)
	}
	if err != nil {
		return fmt.Errorf("shard %d: %w", r.Shard, err)
	}
	r.tree.Store(l.tree)
	r.Watches.Deliver(l.state.Zxid, nil, nil)
	r.use(l)
	r.index.Store(r.image.Applied())
	r.restartClocks()
	r.auditOp(Audited{Op: AuditStart, Zxid: l.state.Zxid, Wall: time.Now().UnixMilli()})
	return nil
}

// use replaces all replicated state but the tree by what was loaded. mu is held, or the shard has
// not started.
func (r *Replica) use(l *imageLoader) {
	r.mu.table, r.mu.members, r.mu.State = l.table, l.members, l.state
	r.setLevel(l.state.Level)
	r.setSeed(l.state.Seed)
	r.noteOrigins()
	r.noteMembers()
}

// loadImage reads a whole image into memory. It refuses an image that no replica of this build
// could have written, that needs a scheme which is not known, or that is above the highest level.
func loadImage(image *storage.Image, known tree.Schemes, highest uint32) (*imageLoader, error) {
	l := newImageLoader(highest)
	if image.Applied() == 0 {
		l.state.Level, l.tree = command.LevelMin, tree.New(nil)
		return l, nil
	}
	var schemes tree.Schemes
	l.check = func(state command.State) (err error) {
		schemes, err = pickSchemes(known, state.Rules.Schemes)
		return err
	}
	if err := image.Load(l.addRecord); err != nil {
		return nil, err
	}
	if err := l.finish(); err != nil {
		return nil, err
	}
	l.tree.SetSchemes(schemes)
	l.tree.SetWeightMax(l.state.Rules.TreeMax)
	return l, nil
}

// pickSchemes returns the schemes with the given names. The log decides which schemes count, so
// that all replicas judge an ACL alike. A replica that lacks one of them must not go on.
func pickSchemes(known tree.Schemes, names []string) (tree.Schemes, error) {
	schemes := make(tree.Schemes, len(names))
	for _, name := range names {
		if known[name] == nil {
			return nil, lacksScheme(name, slices.Sorted(maps.Keys(known)))
		}
		schemes[name] = known[name]
	}
	return schemes, nil
}

// An imageLoader collects the records of an image.
type imageLoader struct {
	znodes   *tree.Loader
	tree     *tree.Tree // made by finish
	table    *session.Table
	members  *session.Members
	state    command.State
	hasState bool
	highest  uint32 // level that is read
	// check judges the state; nil accepts any. It is called before an image is opened for writing.
	check func(command.State) error
}

var errNoState = fmt.Errorf("%w: the record %q is missing", command.ErrMalformed, command.StateKey)

func newImageLoader(highest uint32) *imageLoader {
	return &imageLoader{highest: highest, znodes: tree.NewLoader(nil), table: session.NewTable(), members: session.NewMembers()}
}

// addRecord adds one record of any table. The state comes first: its level tells how to read the
// others.
func (l *imageLoader) addRecord(t storage.Table, key, value []byte) error {
	if t != storage.Meta && !l.hasState {
		return errNoState
	}
	switch t {
	case storage.Znodes:
		return l.addZnode(string(key), value)
	case storage.Sessions:
		return l.addSession(key, value)
	case storage.Origins:
		return l.addOrigin(key, value)
	case storage.Members:
		return l.addMember(key, value)
	}
	return l.addState(string(key), value)
}

func (l *imageLoader) addZnode(path string, value []byte) error {
	z, err := command.DecodeZnode(value)
	if err != nil {
		return fmt.Errorf("znode %q: %w", path, err)
	}
	if z.Owner != 0 {
		l.table.Track([]tree.Change{{Type: tree.Created, Path: path, Owner: z.Owner}})
	}
	return l.znodes.Add(path, z)
}

func (l *imageLoader) addSession(key, value []byte) error {
	rec, err := command.DecodeSession(value)
	if err == nil && !bytes.Equal(key, command.IDKey(uint64(rec.ID))) {
		err = command.ErrMalformed
	}
	if err != nil {
		return fmt.Errorf("session %x: %w", key, err)
	}
	return l.table.LoadRecord(rec)
}

func (l *imageLoader) addOrigin(key, value []byte) error {
	o, err := command.DecodeOrigin(value)
	if err == nil && !bytes.Equal(key, command.IDKey(uint64(o.Member))) {
		err = command.ErrMalformed
	}
	if err != nil {
		return fmt.Errorf("origin %x: %w", key, err)
	}
	l.table.LoadOrigin(o)
	return nil
}

func (l *imageLoader) addMember(key, value []byte) error {
	if bytes.Equal(key, command.EnsembleKey) {
		ensemble, err := command.DecodeEnsemble(value)
		if err != nil {
			return fmt.Errorf("ensemble: %w", err)
		}
		l.members.LoadEnsemble(ensemble)
		return nil
	}
	m, err := command.DecodeMember(value)
	if err == nil && !bytes.Equal(key, command.IDKey(uint64(m.ID))) {
		err = command.ErrMalformed
	}
	if err != nil {
		return fmt.Errorf("member %x: %w", key, err)
	}
	l.members.LoadMember(m)
	return nil
}

func (l *imageLoader) addState(key string, value []byte) (err error) {
	if key != command.StateKey {
		return fmt.Errorf("%w: unknown record %q", command.ErrMalformed, key)
	}
	l.hasState = true
	if l.state, err = command.DecodeState(value, l.highest); err != nil {
		return fmt.Errorf("record %q: %w", key, err)
	}
	if l.check != nil {
		return l.check(l.state)
	}
	return nil
}

// finish makes a tree of the collected znodes, and verifies the tree and the tables.
func (l *imageLoader) finish() (err error) {
	if !l.hasState {
		return errNoState
	}
	if l.tree, err = l.znodes.Finish(l.state.Zxid); err != nil {
		return err
	}
	return errors.Join(l.table.Verify(), l.members.Verify())
}

// Contents are what CheckImage found in an image.
type Contents struct {
	Applied  uint64 // index of the newest entry; if it is zero, the image is empty
	Znodes   int
	Sessions int
	Zxid     tree.Zxid
	Level    uint32
	Origin   session.Origin // of the given member; zero if it has not registered
}

// CheckImage reads and verifies a whole image, and keeps nothing of it in memory.
func CheckImage(o storage.Options, member session.MemberID) (Contents, error) {
	l := newImageLoader(command.LevelMax)
	applied, err := storage.Check(o, func(t storage.Table, key, value []byte) error {
		if err := l.addRecord(t, key, value); err != nil {
			return fmt.Errorf("%s: %w", o.Dir, err)
		}
		return nil
	})
	if err != nil || applied == 0 {
		return Contents{}, err
	}
	if err := l.finish(); err != nil {
		return Contents{}, fmt.Errorf("%s: %w", o.Dir, err)
	}
	origin, _ := l.table.Origin(member)
	return Contents{Applied: applied, Znodes: l.tree.Len(), Sessions: l.table.Len(), Zxid: l.state.Zxid, Level: l.state.Level, Origin: origin}, nil
}
