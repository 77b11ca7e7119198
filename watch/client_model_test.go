package watch

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/vivarium-go/vivarium/tree"
)

// check returns the first broken invariant of the tables.
func (t *tables) check() error {
	n, both := 0, 0
	var below depths
	for in := range tableCount {
		for path, m := range t.marks[in] {
			for prev := (*mark)(nil); m != nil; prev, m = m, m.next {
				if m.path != path || m.prev != prev || m.terms&^joint == 0 || m.part.own[in].marks[path] != m {
					return fmt.Errorf("table %d has %+v at %q", in, m, path)
				}
				n++
			}
			if in == belowTable {
				below.add(path)
				if t.marks[dataTable][path] != nil {
					both++
				}
			}
		}
	}
	if n != t.n || both != t.both || !slices.Equal(below, t.depths) {
		return fmt.Errorf("%d marks, %d paths of both tables, depths %v; counted %d, %d, %v", n, both, below, t.n, t.both, t.depths)
	}
	return nil
}

// clientModel is one connection's two tables, as in ZooKeeper, and the events that it was sent. It
// is written without regard to cost or shards.
type clientModel struct {
	data, child map[string]map[Mode]bool
	may         bool // may read what is secret
	limit       int
	queued      []Event
	err         error
}

func newClientModel(limit int) *clientModel {
	return &clientModel{data: make(map[string]map[Mode]bool), child: make(map[string]map[Mode]bool), limit: limit}
}

// tablesOf returns the tables that have a watch of the mode.
func (m *clientModel) tablesOf(mode Mode) []map[string]map[Mode]bool {
	switch mode {
	case Children:
		return []map[string]map[Mode]bool{m.child}
	case Persistent:
		return []map[string]map[Mode]bool{m.data, m.child}
	}
	return []map[string]map[Mode]bool{m.data}
}

func (m *clientModel) arm(path string, mode Mode) {
	for _, table := range m.tablesOf(mode) {
		if table[path] == nil {
			table[path] = make(map[Mode]bool)
		}
		table[path][mode] = true
	}
}

func (m *clientModel) has(path string, mode Mode) bool { return m.tablesOf(mode)[0][path][mode] }

func (m *clientModel) remove(path string, mode Mode) bool {
	was := m.has(path, mode)
	for _, table := range m.tablesOf(mode) {
		delete(table[path], mode)
		if len(table[path]) == 0 {
			delete(table, path)
		}
	}
	return was
}

// trigger is ZooKeeper's WatchManager.triggerWatch for one connection.
func (m *clientModel) trigger(table map[string]map[Mode]bool, std Mode, e Event, acl []tree.ACL, suppress bool) (matched bool) {
	for path, modes := range table {
		if path == e.Path {
			matched = true
			if delete(modes, std); len(modes) == 0 {
				delete(table, path)
			}
		} else if modes[Recursive] && strings.HasPrefix(e.Path, strings.TrimSuffix(path, "/")+"/") {
			matched = true
		}
	}
	if matched && !suppress && (m.may || len(acl) == 0) {
		m.send(e)
	}
	return matched
}

func (m *clientModel) send(e Event) {
	missed := 0
	for _, e := range m.queued {
		if e.Zxid == NoZxid {
			missed++
		}
	}
	if m.err == nil && len(m.queued)-missed >= m.limit {
		m.end(ErrOverflow)
	}
	if m.err == nil {
		m.queued = append(m.queued, e)
	}
}

func (m *clientModel) end(err error) {
	if m.err == nil {
		m.err, m.queued = err, nil
	}
}

func (m *clientModel) see(z tree.Zxid, c tree.Change) {
	e := eventOf(z, c)
	processed := m.trigger(m.data, Data, e, c.ACL, false)
	if c.Type == tree.Deleted {
		m.trigger(m.child, Children, e, c.ACL, processed)
	}
	if c.Type != tree.DataChanged {
		parent := tree.Parent(c.Path)
		m.trigger(m.child, Children, Event{Type: NodeChildrenChanged, Path: parent, Zxid: z}, c.ParentACL, false)
	}
}

// reset is setWatches for one list.
func (m *clientModel) reset(paths []string, mode Mode, missed func(path string) EventType) {
	for _, path := range paths {
		if e := missed(path); e != 0 && m.err == nil {
			m.queued = append(m.queued, Event{Type: e, Path: path, Zxid: NoZxid})
		} else {
			m.arm(path, mode)
		}
	}
}

func (m *clientModel) install(z tree.Zxid, gap *scriptGap) {
	for path, modes := range m.data {
		for mode := range modes {
			if _, _, yes := gap.touched(path, mode); yes && mode != Data {
				m.end(&GapError{z})
			}
		}
	}
	all := slices.Collect(maps.Keys(m.data))
	all = append(all, slices.Collect(maps.Keys(m.child))...)
	slices.Sort(all)
	for _, path := range slices.Compact(all) {
		var deleted bool
		if e, acl, yes := gap.touched(path, Data); yes && m.data[path][Data] {
			m.remove(path, Data)
			deleted = e == NodeDeleted
			if m.may || len(acl) == 0 {
				m.send(Event{Type: e, Path: path, Zxid: z})
			}
		}
		if e, acl, yes := gap.touched(path, Children); yes && m.child[path][Children] {
			m.remove(path, Children)
			if (m.may || len(acl) == 0) && !(deleted && e == NodeDeleted) {
				m.send(Event{Type: e, Path: path, Zxid: z})
			}
		}
	}
}

// A scriptGap is what a snapshot may have changed on a shard.
type scriptGap struct {
	kind map[string]int
	held func(path string) bool
}

func (g *scriptGap) touched(path string, mode Mode) (EventType, []tree.ACL, bool) {
	if !g.held(path) {
		return 0, nil, false
	}
	var acl []tree.ACL
	kind := g.kind[path]
	if kind >= 4 {
		kind, acl = kind-4, secret
	}
	switch {
	case mode == Recursive:
		return NodeDataChanged, acl, kind == 1
	case kind == 0:
		return 0, nil, false
	case kind == 1 && mode != Children:
		return NodeDataChanged, acl, true
	case kind == 2 && mode != Data:
		return NodeChildrenChanged, acl, true
	case kind == 3:
		return NodeDeleted, acl, true
	}
	return 0, nil, false
}

var secret = []tree.ACL{{ID: "secret"}}

// clientScript runs the operations that a fuzzer chooses.
type clientScript struct {
	t       *testing.T
	script  []byte
	on      *Shards
	clients []*Client
	models  []*clientModel
	places  []Place // the newest of each client
	counts  []uint64
}

func (s *clientScript) next(n int) int {
	if len(s.script) == 0 {
		return 0
	}
	b := s.script[0]
	s.script = s.script[1:]
	return int(b) % n
}

func (s *clientScript) path() string { return paths[s.next(len(paths))] }

func (s *clientScript) acl() []tree.ACL {
	if s.next(4) == 0 {
		return secret
	}
	return nil
}

// of returns the shard of a path; the root is on all shards.
func (s *clientScript) of(path string) int {
	if len(s.on.Registries) == 1 {
		return 0
	}
	return s.on.Of(path, Data)
}

func (s *clientScript) open() {
	limit := 1 + s.next(12)
	m := newClientModel(limit)
	s.models = append(s.models, m)
	s.clients = append(s.clients, NewClient(s.on, limit, func(acl []tree.ACL) bool { return m.may || len(acl) == 0 }))
	s.places, s.counts = append(s.places, Place{}), append(s.counts, 0)
}

func (s *clientScript) step() {
	i := s.next(len(s.clients))
	c, m := s.clients[i], s.models[i]
	switch kind := s.next(20); {
	case kind < 6:
		path, mode, armed := s.path(), modes[s.next(len(modes))], s.next(5) > 0
		if s.place(i)(c.Arm(path, mode, func() bool { return armed })); armed && m.err == nil {
			m.arm(path, mode)
		}
	case kind < 12:
		s.deliver()
	case kind == 12:
		path, mode := s.path(), modes[s.next(len(modes))]
		if m.err == nil && c.Remove(path, mode) != m.remove(path, mode) {
			s.t.Fatalf("removing mode %d of %s", mode, path)
		}
	case kind == 13:
		m.may = !m.may
	case kind == 14:
		s.reset(i)
	case kind == 15:
		s.install()
	case kind == 16 && s.next(4) == 0:
		c.End(nil)
		m.end(ErrEnded)
		if len(s.clients) < 6 {
			s.open()
		}
	default:
		s.take(i)
	}
}

// place records where an operation happened among the events.
func (s *clientScript) place(i int) func(Place, error) {
	return func(p Place, err error) {
		m := s.models[i]
		if (err == nil) != (m.err == nil) {
			s.t.Fatalf("ended with %v, the model with %v", err, m.err)
		}
		if err == nil {
			s.places[i], s.counts[i] = p, s.clients[i].mu.queued
		}
	}
}

func (s *clientScript) deliver() {
	at := s.next(len(s.on.Registries))
	r := s.on.Registries[at]
	var changes []tree.Change
	for range s.next(4) {
		c := tree.Change{Type: tree.ChangeType(1 + s.next(3)), Path: s.path(), ACL: s.acl(), ParentACL: s.acl()}
		if s.of(c.Path) == at || c.Path == "/" && c.Type == tree.DataChanged {
			if c.Path != "/" || c.Type == tree.DataChanged {
				changes = append(changes, c)
			}
		}
	}
	z := r.zxid + 1
	r.Deliver(z, changes, nil)
	for _, c := range changes {
		for _, m := range s.models {
			m.see(z, c)
		}
	}
}

func (s *clientScript) reset(i int) {
	was := Reset{Since: 10, Unknown: s.next(3) == 0}
	for _, list := range []*[]string{&was.Data, &was.Exist, &was.Children, &was.Persistent, &was.Recursive} {
		for range s.next(3) {
			*list = append(*list, s.path())
		}
	}
	now := make(stats)
	for _, path := range paths {
		if s.next(3) > 0 {
			now[path] = [2]tree.Zxid{tree.Zxid(9 + s.next(4)), tree.Zxid(9 + s.next(4))}
		}
	}
	m := s.models[i]
	missed := func(which int, change EventType) func(string) EventType {
		return func(path string) EventType {
			z, ok := now[path]
			switch {
			case !ok:
				return NodeDeleted
			case was.Unknown || z[which] > was.Since:
				return change
			}
			return 0
		}
	}
	none := func(string) EventType { return 0 }
	for left := was; ; s.deliver() { // all in one go, or with transactions in between
		n := 1 + s.next(12)
		s.place(i)(s.clients[i].resume(&was, n, now.look))
		if m.err != nil {
			return
		}
		m.reset(first(&left.Data, &n), Data, missed(0, NodeDataChanged))
		m.reset(first(&left.Exist, &n), Data, func(path string) EventType {
			if _, ok := now[path]; ok {
				return NodeCreated
			}
			return 0
		})
		m.reset(first(&left.Children, &n), Children, missed(1, NodeChildrenChanged))
		m.reset(first(&left.Persistent, &n), Persistent, none)
		m.reset(first(&left.Recursive, &n), Recursive, none)
		if was.empty() {
			return
		}
	}
}

func (s *clientScript) install() {
	at := s.next(len(s.on.Registries))
	r := s.on.Registries[at]
	gap := &scriptGap{kind: make(map[string]int), held: func(path string) bool { return s.of(path) == at || s.of(path) == Everywhere }}
	for _, path := range paths {
		if s.next(4) == 0 {
			gap.kind[path] = s.next(8)
		}
	}
	z := r.zxid + 10
	r.Install(z, gap.touched, nil)
	for _, m := range s.models {
		m.install(z, gap)
	}
}

// take takes all events, or those up to the last operation.
func (s *clientScript) take(i int) {
	c, m := s.clients[i], s.models[i]
	place, all := s.places[i], s.next(2) == 0
	if all {
		place = c.At(0)
	}
	events, err := c.Take(place)
	if fmt.Sprint(err) != fmt.Sprint(m.err) {
		s.t.Fatalf("ended with %v, the model with %v", err, m.err)
	}
	want := len(m.queued)
	if !all {
		want = max(0, want-int(c.mu.queued-s.counts[i]))
	}
	if m.err != nil {
		want = 0
	}
	if !slices.Equal(events, m.queued[:want]) {
		s.t.Fatalf("told %v, the model %v of %v", events, m.queued[:want], m.queued)
	}
	m.queued = m.queued[want:]
}

func (s *clientScript) compare() {
	for i, c := range s.clients {
		m := s.models[i]
		if fmt.Sprint(c.Err()) != fmt.Sprint(m.err) {
			s.t.Fatalf("client %d has ended with %v, the model with %v", i, c.Err(), m.err)
		}
		if m.err != nil {
			continue
		}
		if data, children := c.Counts(); data != len(m.data) || children != len(m.child) {
			s.t.Fatalf("client %d has %d and %d watches, the model %v and %v", i, data, children, m.data, m.child)
		}
		if got, want := c.Paths(), slices.Sorted(maps.Keys(m.data)); !slices.Equal(got, want) {
			s.t.Fatalf("client %d has %q, the model %q", i, got, want)
		}
		for _, path := range paths {
			for _, mode := range modes {
				if c.Has(path, mode) != m.has(path, mode) {
					s.t.Fatalf("client %d, mode %d of %s: the model has %v", i, mode, path, m.has(path, mode))
				}
			}
		}
	}
	for _, r := range s.on.Registries {
		if err := r.check(); err != nil {
			s.t.Fatal(err)
		}
	}
}

// FuzzClient compares clients on one shard, or on two, with the model.
func FuzzClient(f *testing.F) {
	seeds := uint64(300)
	if testing.Short() {
		seeds = 30
	}
	for seed := range seeds {
		r := rand.New(rand.NewPCG(seed, 7))
		script := make([]byte, 700)
		for i := range script {
			script[i] = byte(r.Uint32())
		}
		f.Add(script, seed%2 == 0)
	}
	f.Fuzz(func(t *testing.T, script []byte, several bool) {
		s := &clientScript{t: t, script: script, on: &Shards{Registries: []*Registry{NewRegistry()}}}
		if several {
			s.on = twoShards()
		}
		for range 3 {
			s.open()
		}
		for len(s.script) > 0 {
			s.step()
			s.compare()
		}
		for i, c := range s.clients {
			s.take(i)
			c.End(nil)
		}
		for _, r := range s.on.Registries {
			if err := r.check(); err != nil || r.clients.n != 0 {
				t.Fatalf("%d marks are left: %v", r.clients.n, err)
			}
		}
	})
}
