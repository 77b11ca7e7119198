package session

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/tree"
)

// model is the table as one would write it without a thought for cost: every question looks at every
// session, and a session that is due is marked so at once.
type model struct {
	origins    map[MemberID]Origin
	sessions   map[tree.SessionID]modelSession
	ephemerals map[string]tree.SessionID
}

type modelSession struct {
	timeout time.Duration
	at      MemberID
	due     bool
}

func newModel() *model {
	return &model{make(map[MemberID]Origin), make(map[tree.SessionID]modelSession), make(map[string]tree.SessionID)}
}

func (m *model) register(n Origin) ([]tree.SessionID, error) {
	for _, o := range m.origins {
		if o.Digest != n.Digest {
			return nil, ErrOtherFounding
		}
	}
	old, ok := m.origins[n.Member]
	switch {
	case ok && old.Directory != n.Directory:
		return nil, ErrOtherDirectory
	case n.Start <= old.Start:
		return nil, ErrOlderStart
	}
	m.origins[n.Member] = n
	var ended []tree.SessionID
	for _, id := range slices.Sorted(maps.Keys(m.sessions)) {
		if s := m.sessions[id]; s.at == n.Member && !s.due {
			s.due = true
			m.sessions[id] = s
			ended = append(ended, id)
		}
	}
	return ended, nil
}

func (m *model) accept(member MemberID, start, seq uint64) Verdict {
	o, ok := m.origins[member]
	switch {
	case !ok || start > o.Start:
		return Unregistered
	case start < o.Start:
		return Retired
	case seq <= o.LastSeq:
		return Repeat
	case seq > o.LastSeq+1:
		return Gap
	}
	o.LastSeq, o.Step, o.Silence = seq, 0, 0
	m.origins[member] = o
	return Accepted
}

func (m *model) min(member MemberID) (least time.Duration, ok bool) {
	for _, s := range m.sessions {
		if s.at == member && !s.due && (!ok || s.timeout < least) {
			least, ok = s.timeout, true
		}
	}
	return least, ok
}

func (m *model) silence(s Step, d time.Duration) bool {
	o := m.origins[s.Member]
	least, ok := m.min(s.Member)
	if !ok || s.Start != o.Start || s.LastSeq != o.LastSeq || s.Step != o.Step+1 || d <= 0 {
		return false
	}
	o.Step++
	o.Silence += min(d, time.Duration((int64(least)+3)/4))
	m.origins[s.Member] = o
	for id, session := range m.sessions {
		if session.at == s.Member && session.timeout <= o.Silence {
			session.due = true
			m.sessions[id] = session
		}
	}
	return true
}

func (m *model) open(id tree.SessionID, timeout time.Duration, at MemberID) error {
	o, ok := m.origins[at]
	switch {
	case id == 0:
		return ErrInvalidID
	case timeout <= 0:
		return ErrInvalidTimeout
	case m.sessions[id].timeout > 0:
		return ErrSessionExists
	case !ok:
		return ErrUnregistered
	case o.LastSeq == 0 || o.Silence > 0:
		return ErrSilent
	}
	m.sessions[id] = modelSession{timeout: timeout, at: at}
	return nil
}

func (m *model) usable(id tree.SessionID, at MemberID) error {
	s, ok := m.sessions[id]
	switch {
	case !ok || s.due:
		return ErrExpired
	case s.at != at:
		return ErrMoved
	}
	return nil
}

func (m *model) due() []tree.SessionID {
	var ids []tree.SessionID
	for _, id := range slices.Sorted(maps.Keys(m.sessions)) {
		if m.sessions[id].due {
			ids = append(ids, id)
		}
	}
	return ids
}

func (m *model) owned(id tree.SessionID) []string {
	var paths []string
	for path, owner := range m.ephemerals {
		if owner == id {
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	return paths
}

// pair drives a table and the model with the same calls, chosen by the bytes of a script. The numbers are
// small, so that refusals, repeats and ties are frequent.
type pair struct {
	t      testing.TB
	bytes  []byte
	table  *Table
	model  *model
	image  image
	called []string
}

// next takes one byte and returns it below n.
func (p *pair) next(n int) int {
	if len(p.bytes) == 0 {
		return 0
	}
	b := p.bytes[0]
	p.bytes = p.bytes[1:]
	return int(b) % n
}

func (p *pair) member() MemberID    { return MemberID(1 + p.next(3)) }
func (p *pair) id() tree.SessionID  { return tree.SessionID(p.next(12)) }
func (p *pair) span() time.Duration { return time.Duration(p.next(24)-1) * time.Second }

func (p *pair) run() {
	for len(p.bytes) > 0 {
		call, got, want := p.call()
		p.called = append(p.called, call)
		if fmt.Sprint(got) != fmt.Sprint(want) {
			p.t.Fatalf("%s is %v, the model says %v\n%q", call, got, want, p.called)
		}
		p.compare()
	}
}

func (p *pair) call() (call string, got, want any) {
	switch p.next(12) {
	case 0:
		return p.register()
	case 1, 2, 3:
		m := p.member()
		o := p.model.origins[m]
		start, seq := o.Start+uint64(p.next(8)/7), o.LastSeq+1
		if p.next(4) == 0 {
			start, seq = uint64(p.next(4)), uint64(p.next(6))
		}
		return fmt.Sprint("accept ", m, start, seq), p.table.Accept(m, start, seq), p.model.accept(m, start, seq)
	case 4, 5, 6:
		m := p.member()
		o := p.model.origins[m]
		s, d := Step{m, o.Start, o.LastSeq, o.Step + 1}, p.span()
		if p.next(4) == 0 {
			s = Step{m, uint64(p.next(4)), uint64(p.next(6)), uint64(p.next(4))}
		}
		return fmt.Sprint("silence ", s, d), p.table.Silence(s, d), p.model.silence(s, d)
	case 7, 8:
		id, timeout, m := p.id(), p.span(), p.member()
		return fmt.Sprint("open ", id, timeout, m), p.table.Open(id, [16]byte{byte(id)}, timeout, m, nil), p.model.open(id, timeout, m)
	case 9:
		id := p.id()
		for _, path := range p.model.owned(id) {
			delete(p.model.ephemerals, path)
			p.table.Track([]tree.Change{{Type: tree.Deleted, Path: path, Owner: id}})
		}
		_, want := p.model.sessions[id]
		delete(p.model.sessions, id)
		return fmt.Sprint("close ", id), p.table.Close(id, 0), want
	case 10:
		return p.track()
	default:
		p.image.drain(p.t, p.table)
		p.table = p.image.load(p.t, p.table)
		return "reload", nil, nil
	}
}

func (p *pair) register() (call string, got, want any) {
	n := Origin{Member: p.member(), Start: uint64(p.next(4))}
	n.Directory[0] = byte(n.Member)
	if p.next(8) == 0 {
		n.Directory[0]++
	}
	n.Digest[0] = byte(p.next(8) / 7)
	ended, err := p.table.Register(n)
	wantEnded, wantErr := p.model.register(n)
	if !errors.Is(err, wantErr) {
		return fmt.Sprintf("register %+v", n), err, wantErr
	}
	return fmt.Sprintf("register %+v", n), ended, wantEnded
}

func (p *pair) track() (call string, got, want any) {
	id, path := p.id(), fmt.Sprintf("/%d", p.next(6))
	owner, exists := p.model.ephemerals[path]
	c := tree.Change{Type: tree.Created, Path: path, Owner: id}
	switch {
	case exists:
		c.Type, c.Owner = tree.Deleted, owner
		delete(p.model.ephemerals, path)
	case p.model.sessions[id].timeout > 0:
		p.model.ephemerals[path] = id
	default:
		c.Owner = 0
	}
	p.table.Track([]tree.Change{c})
	return fmt.Sprintf("track %+v", c), p.table.Ephemerals(c.Owner), p.model.owned(c.Owner)
}

// compare asks both everything that can be asked.
func (p *pair) compare() {
	if err := p.table.Verify(); err != nil {
		p.t.Fatalf("%v\n%q", err, p.called)
	}
	due := p.model.due()
	same(p, "due", p.table.Due(), due)
	p.is("due len", p.table.DueLen() == len(due))
	p.is("len", p.table.Len() == len(p.model.sessions))
	var origins []Origin
	for m := MemberID(1); m <= 4; m++ {
		o, ok := p.model.origins[m]
		if ok {
			origins = append(origins, o)
		}
		got, registered := p.table.Origin(m)
		p.is("origin", got == o && registered == ok)
		least, live := p.model.min(m)
		d, found := p.table.MinTimeout(m)
		p.is("min", d == least && found == live)
		s, d, found := p.table.NextStep(m)
		if p.is("next ok", found == live); live {
			p.is("next step", s == Step{m, o.Start, o.LastSeq, o.Step + 1})
			p.is("next d", d == min(least-o.Silence, time.Duration((int64(least)+3)/4)))
		}
	}
	same(p, "origins", p.table.Origins(), origins)
	for id := tree.SessionID(0); id < 13; id++ {
		for m := MemberID(1); m <= 3; m++ {
			p.is("usable", p.table.Usable(id, m) == p.model.usable(id, m))
		}
		r, ok := p.table.Get(id)
		s := p.model.sessions[id]
		p.is("get", ok == (s.timeout > 0) && r.Timeout == s.timeout && r.Origin == s.at)
		same(p, "ephemerals", p.table.Ephemerals(id), p.model.owned(id))
	}
}

func (p *pair) is(what string, equal bool) {
	p.t.Helper()
	if !equal {
		p.t.Fatalf("%s differs from the model\n%q", what, p.called)
	}
}

func same[E comparable](p *pair, what string, got, want []E) {
	p.t.Helper()
	if !slices.Equal(got, want) {
		p.t.Fatalf("%s: %v, the model says %v\n%q", what, got, want, p.called)
	}
}

func FuzzTable(f *testing.F) {
	for seed := range uint64(32) {
		f.Add(randomBytes(rand.New(rand.NewPCG(seed, 0)), 400))
	}
	f.Fuzz(func(t *testing.T, script []byte) {
		p := &pair{t: t, bytes: script, table: NewTable(), model: newModel()}
		p.run()
	})
}

func randomBytes(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}
