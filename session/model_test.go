package session

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/tree"
)

// model is the table in its simplest form, without regard to cost. Every question looks at every
// session, and a due session is marked at once.
type model struct {
	origins    map[MemberID]Origin
	sessions   map[tree.SessionID]modelSession
	ephemerals map[string]tree.SessionID
	ended      map[tree.SessionID]modelEnd
	retired    map[MemberID]bool
}

type modelSession struct {
	timeout  time.Duration
	at       MemberID
	due      bool
	closing  bool // due, whatever the silence is
	password [16]byte
	attached tree.Zxid // of a remote session
	who      string    // what the session has authenticated as
	shards   string    // one digit for each shard
	former   map[MemberID]uint64
	told     tree.Zxid // when it ended, by Purge
	closed   bool      // by Purge: it was not lost
}

// modelEnd is a session that has ended. It waits for shards to be purged. If it has none, it waits
// for members that may still ask for it.
type modelEnd struct {
	ended  tree.Zxid
	lost   bool
	shards string
	former map[MemberID]uint64
}

func newModel() *model {
	return &model{make(map[MemberID]Origin), make(map[tree.SessionID]modelSession), make(map[string]tree.SessionID), make(map[tree.SessionID]modelEnd), make(map[MemberID]bool)}
}

func (m *model) register(n Origin) ([]tree.SessionID, error) {
	for _, o := range m.origins {
		if o.Digest != n.Digest {
			return nil, ErrOtherFounding
		}
	}
	old, ok := m.origins[n.Member]
	switch {
	case m.retired[n.Member]:
		return nil, ErrRetired
	case ok && old.Directory != n.Directory:
		return nil, ErrOtherDirectory
	case n.Start <= old.Start:
		return nil, ErrOlderStart
	}
	m.origins[n.Member] = n
	var ended []tree.SessionID
	for _, id := range slices.Sorted(maps.Keys(m.sessions)) {
		if s := m.sessions[id]; s.at == n.Member && !s.closing && (s.due || s.attached == 0) {
			s.due, s.closing = true, true
			m.sessions[id] = s
			ended = append(ended, id)
		}
	}
	m.asksNoMore(n.Member, func(e modelEnd) bool { return e.former[n.Member] < n.Start })
	return ended, nil
}

// retire ends a member's stream. Silence and sessions go on as before.
func (m *model) retire(member MemberID) {
	m.retired[member] = true
	if o, ok := m.origins[member]; ok {
		o.Retired = true
		m.origins[member] = o
	}
	m.asksNoMore(member, func(modelEnd) bool { return true })
}

// doom makes the in-process sessions of a member closing.
func (m *model) doom(member MemberID) {
	for id, s := range m.sessions {
		if s.at == member && s.attached == 0 && !s.due {
			s.due, s.closing = true, true
			m.sessions[id] = s
		}
	}
}

func (m *model) accept(member MemberID, start, seq uint64) Verdict {
	o, ok := m.origins[member]
	switch {
	case m.retired[member]:
		return Retired
	case !ok || start > o.Start:
		return Unregistered
	case start < o.Start:
		return Retired
	case seq <= o.LastSeq:
		return Repeat
	case seq > o.LastSeq+1:
		return Gap
	}
	o.LastSeq, o.Steps, o.Silence = seq, 0, 0
	m.origins[member] = o
	for id, s := range m.sessions {
		if s.at == member {
			s.closing = s.due
			m.sessions[id] = s
		}
	}
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
	if !ok || s.Start != o.Start || s.LastSeq != o.LastSeq || s.Number != o.Steps+1 || d <= 0 {
		return false
	}
	o.Steps++
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

func (m *model) heard(timeout time.Duration, at MemberID) error {
	o, ok := m.origins[at]
	switch {
	case timeout <= 0:
		return ErrInvalidTimeout
	case !ok:
		return ErrUnregistered
	case o.LastSeq == 0 || o.Silence > 0:
		return ErrSilent
	}
	return nil
}

func (m *model) open(id tree.SessionID, s modelSession) error {
	switch {
	case id == 0:
		return ErrInvalidID
	case s.timeout <= 0:
		return ErrInvalidTimeout
	case m.sessions[id].timeout > 0:
		return ErrSessionExists
	}
	if err := m.heard(s.timeout, s.at); err != nil {
		return err
	}
	m.sessions[id] = s
	return nil
}

func (m *model) reattach(id tree.SessionID, n modelSession) error {
	s, ok := m.sessions[id]
	switch {
	case !ok || s.due:
		return ErrExpired
	case s.attached == 0:
		return ErrNotRemote
	case s.password != n.password:
		return ErrWrongPassword
	}
	if err := m.heard(n.timeout, n.at); err != nil {
		return err
	}
	former := maps.Clone(s.former)
	delete(former, n.at)
	if s.at != n.at && s.shards != "" {
		if former == nil {
			former = make(map[MemberID]uint64)
		}
		former[s.at] = m.origins[s.at].Start
	}
	n.shards, n.former = s.shards, former
	m.sessions[id] = n
	return nil
}

func (m *model) introduce(id tree.SessionID, n modelSession) error {
	if _, ok := m.ended[id]; ok {
		return ErrExpired
	}
	s, ok := m.sessions[id]
	switch {
	case !ok:
		return m.open(id, n)
	case s.due:
		return ErrExpired
	case n.attached < s.attached, n.attached == s.attached && n.at != s.at:
		return ErrAttachedElsewhere
	case n.attached == 0:
		return nil
	case s.attached == 0:
		return ErrNotRemote
	}
	if err := m.heard(n.timeout, n.at); err != nil {
		return err
	}
	s.timeout, s.at, s.attached, s.who = n.timeout, n.at, n.attached, n.who
	m.sessions[id] = s
	return nil
}

func (m *model) close(id tree.SessionID, ended tree.Zxid, lost bool) bool {
	s, ok := m.sessions[id]
	delete(m.sessions, id)
	switch {
	case s.told != 0:
		m.remember(id, modelEnd{ended: s.told, former: s.former})
	case s.shards != "":
		former := map[MemberID]uint64{s.at: m.origins[s.at].Start}
		maps.Copy(former, s.former)
		m.ended[id] = modelEnd{ended: ended, lost: lost, shards: s.shards, former: former}
	}
	return ok
}

func (m *model) remember(id tree.SessionID, e modelEnd) {
	m.ended[id] = e
	for member, o := range m.origins {
		m.asksNoMore(member, func(e modelEnd) bool { return e.former[member] < o.Start })
	}
	for member := range m.retired {
		m.asksNoMore(member, func(modelEnd) bool { return true })
	}
}

// asksNoMore removes a member from the wanted ends that wait for members.
func (m *model) asksNoMore(member MemberID, wanted func(modelEnd) bool) {
	for id, e := range m.ended {
		if _, asks := e.former[member]; !asks || e.shards != "" || !wanted(e) {
			continue
		}
		e.former = maps.Clone(e.former)
		if delete(e.former, member); len(e.former) == 0 {
			delete(m.ended, id)
			continue
		}
		m.ended[id] = e
	}
}

func (m *model) purge(id tree.SessionID, former map[MemberID]uint64, ended tree.Zxid, lost bool) bool {
	s, ok := m.sessions[id]
	if !ok {
		if _, repeat := m.ended[id]; !repeat {
			m.remember(id, modelEnd{ended: ended, former: former})
		}
		return true
	}
	s.due, s.closing, s.told, s.closed, s.former = true, true, ended, !lost, former
	m.sessions[id] = s
	return false
}

func (m *model) purged(id tree.SessionID, shard string) {
	e, ok := m.ended[id]
	if !ok || !strings.Contains(e.shards, shard) {
		return
	}
	if e.shards = strings.ReplaceAll(e.shards, shard, ""); e.shards == "" {
		delete(m.ended, id)
		return
	}
	m.ended[id] = e
}

func (m *model) usable(id tree.SessionID, at MemberID) error {
	s, ok := m.sessions[id]
	switch {
	case !ok || s.due:
		return ErrExpired
	case s.at != at:
		return ErrAttachedElsewhere
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

// pair makes the same calls to a table and to the model, chosen by the bytes of a script. The
// numbers are small, so that refusals, repeats and ties are frequent.
type pair struct {
	t      testing.TB
	bytes  []byte
	table  *Table
	model  *model
	image  image
	zxid   tree.Zxid // of the newest Open, Reattach or end
	called []string
}

// next takes one byte off the script and returns it modulo n.
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
func (p *pair) secret() [16]byte    { return [16]byte{byte(p.next(8) / 7)} }
func (p *pair) tick() tree.Zxid     { p.zxid++; return p.zxid }
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
	switch p.next(21) {
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
		s, d := Step{m, o.Start, o.LastSeq, o.Steps + 1}, p.span()
		if p.next(4) == 0 {
			s = Step{m, uint64(p.next(4)), uint64(p.next(6)), uint64(p.next(4))}
		}
		return fmt.Sprint("silence ", s, d), p.table.Silence(s, d), p.model.silence(s, d)
	case 7, 8:
		id, s := p.id(), modelSession{timeout: p.span(), at: p.member(), password: p.secret()}
		if _, ended := p.model.ended[id]; ended {
			return "", nil, nil // ids are not used again
		}
		if p.next(3) > 0 {
			s.attached = p.tick()
		}
		return fmt.Sprint("open ", id, s), p.table.Open(id, s.password, s.timeout, s.at, s.attached, nil), p.model.open(id, s)
	case 9:
		id, ended, lost := p.id(), p.tick(), p.next(2) == 0
		for _, path := range p.model.owned(id) {
			delete(p.model.ephemerals, path)
			c := tree.Change{Type: tree.Deleted, Path: path, Owner: id}
			if lost && p.next(2) == 0 {
				c.Type, c.Lost = tree.DataChanged, true
			}
			p.table.Track([]tree.Change{c})
		}
		return fmt.Sprint("close ", id, ended, lost), p.table.Close(id, ended, lost), p.model.close(id, ended, lost)
	case 10:
		return p.track()
	case 11, 12, 13, 14:
		return p.attachment()
	case 15, 16, 17, 18:
		return p.overShards()
	case 19:
		switch m, n := p.member(), p.next(8); n {
		case 0:
			p.table.Retire(m)
			p.model.retire(m)
			return fmt.Sprint("retire ", m), nil, nil
		case 1, 2:
			p.table.Doom(m)
			p.model.doom(m)
			return fmt.Sprint("doom ", m), nil, nil
		}
		return "", nil, nil
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

// who returns identities, and their text.
func (p *pair) who() ([]tree.Identity, string) {
	if n := p.next(3); n > 0 {
		list := []tree.Identity{{Scheme: "digest", ID: fmt.Sprint(n)}}
		return list, fmt.Sprint(list)
	}
	return nil, ""
}

// attachment makes a call about the attachment of a session.
func (p *pair) attachment() (call string, got, want any) {
	id, m := p.id(), p.member()
	switch s := p.model.sessions[id]; p.next(4) {
	case 0:
		list, who := p.who()
		if want = p.model.usable(id, m); want == nil {
			s.who = who
			p.model.sessions[id] = s
		}
		return fmt.Sprint("identities ", id, m, who), p.table.SetIdentities(id, m, list), want
	case 1:
		attached := max(s.attached, 1) - tree.Zxid(p.next(2))
		if want = p.model.usable(id, m); want == nil && s.attached != attached {
			want = ErrAttachedElsewhere
		}
		return fmt.Sprint("attachment ", id, m, attached), p.table.CheckAttachment(id, m, attached), want
	default:
		n := modelSession{timeout: p.span(), at: m, password: p.secret(), attached: p.tick()}
		list, who := p.who()
		n.who = who
		return fmt.Sprint("reattach ", id, n), p.table.Reattach(id, n.password, n.timeout, m, n.attached, list), p.model.reattach(id, n)
	}
}

// overShards makes a call about the other shards of a session that is at home here, or about a
// session that is at home elsewhere.
func (p *pair) overShards() (call string, got, want any) {
	id, m, shard := p.id(), p.member(), uint32(2+p.next(3))
	digit := fmt.Sprint(shard)
	switch p.next(6) {
	case 0, 1:
		if want = p.model.usable(id, m); want == nil {
			s := p.model.sessions[id]
			s.shards = strings.ReplaceAll(s.shards, digit, "") + digit
			p.model.sessions[id] = s
		}
		return fmt.Sprint("add shard ", id, m, shard), p.table.AddShard(id, m, shard), want
	case 2:
		p.model.purged(id, digit)
		p.table.Purged(id, shard)
		return fmt.Sprint("purged ", id, shard), nil, nil
	case 3:
		if p.model.sessions[id].shards != "" {
			return "", nil, nil // the session is at home here
		}
		n := modelSession{timeout: p.span(), at: m, attached: tree.Zxid(p.next(int(p.zxid%128) + 2))}
		list, who := p.who()
		n.who = who
		return fmt.Sprint("introduce ", id, n), p.table.Introduce(id, n.timeout, m, n.attached, list), p.model.introduce(id, n)
	case 4:
		former := map[MemberID]uint64{m: uint64(p.next(4)), p.member(): uint64(p.next(4))}
		var list []Incarnation
		for member, start := range former {
			list = append(list, Incarnation{member, start})
		}
		id = max(id, 1)
		ended, lost := p.tick(), p.next(2) == 0
		return fmt.Sprint("purge ", id, former, ended, lost), p.table.Purge(id, list, ended, lost), p.model.purge(id, former, ended, lost)
	default:
		if _, ok := p.model.origins[m]; !ok {
			return "", nil, nil
		}
		home := tree.Zxid(p.next(int(p.zxid) + 1))
		p.table.AcknowledgeEnds(m, home)
		p.model.asksNoMore(m, func(e modelEnd) bool { return e.ended <= home })
		return fmt.Sprint("carried ", m, home), nil, nil
	}
}

func (p *pair) track() (call string, got, want any) {
	id, path := p.id(), fmt.Sprintf("/%d", p.next(6))
	owner, exists := p.model.ephemerals[path]
	c := tree.Change{Type: tree.Created, Path: path, Owner: id}
	switch {
	case exists:
		c.Type, c.Owner = tree.Deleted, owner
		if p.next(3) == 0 {
			c.Type, c.Lost = tree.DataChanged, p.next(2) == 0
		}
		if c.Type == tree.Deleted || c.Lost {
			delete(p.model.ephemerals, path)
		}
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
		p.is("origin", reflect.DeepEqual(got, o) && registered == ok)
		p.is("retired", p.table.IsRetired(m) == p.model.retired[m])
		speaks := slices.ContainsFunc(slices.Collect(maps.Values(p.model.sessions)), func(s modelSession) bool { return s.at == m })
		p.is("speaks", p.table.Speaks(m) == speaks)
		least, live := p.model.min(m)
		d, found := p.table.MinTimeout(m)
		p.is("min", d == least && found == live)
		s, d, found := p.table.NextStep(m)
		if p.is("next ok", found == live); live {
			p.is("next step", s == Step{m, o.Start, o.LastSeq, o.Steps + 1})
			p.is("next d", d == min(least-o.Silence, time.Duration((int64(least)+3)/4)))
		}
	}
	same(p, "origins", p.table.Origins(), origins)
	ephemerals := 0
	for id := tree.SessionID(0); id < 13; id++ {
		for m := MemberID(1); m <= 3; m++ {
			p.is("usable", p.table.Usable(id, m) == p.model.usable(id, m))
		}
		r, ok := p.table.Get(id)
		s := p.model.sessions[id]
		p.is("get", ok == (s.timeout > 0) && r.Timeout == s.timeout && r.Origin == s.at && r.Closing == s.closing)
		p.is("attachment", r.Attached == s.attached && r.Password == s.password && r.Ended == s.told && maps.Equal(startsOf(r.Former), s.former))
		p.is("lost", p.table.Lost(id) == (s.timeout > 0 && !s.closed) && r.Lost == (s.told != 0 && !s.closed))
		p.is("identities", s.who == "" && len(r.Identities) == 0 || fmt.Sprint(r.Identities) == s.who)
		p.is("shards", digitsOf(r.Shards) == sorted(s.shards))
		p.is("ending", p.table.IsEnding(id) == (s.told != 0))
		same(p, "ephemerals", p.table.Ephemerals(id), p.model.owned(id))
		owned := p.table.Owned(id)
		slices.Sort(owned)
		same(p, "ephemerals in no order", owned, p.table.Ephemerals(id))
		ephemerals += len(owned)
	}
	p.is("count of ephemerals", p.table.CountEphemerals() == ephemerals)
	p.is("ends", len(p.table.ended) == len(p.model.ended))
	for id, e := range p.model.ended {
		r := p.table.ended[id].record(id)
		p.is("end", r.Ended == e.ended && r.Lost == e.lost && digitsOf(r.Shards) == sorted(e.shards) && maps.Equal(startsOf(r.Former), e.former))
		for shard := uint32(2); shard < 5; shard++ {
			p.is("has ended", p.table.HasEnded(id, shard) == strings.Contains(e.shards, fmt.Sprint(shard)))
		}
	}
}

func startsOf(former []Incarnation) map[MemberID]uint64 {
	starts := make(map[MemberID]uint64)
	for _, i := range former {
		starts[i.Member] = i.Start
	}
	return starts
}

func digitsOf(shards []uint32) (digits string) {
	for _, shard := range shards {
		digits += fmt.Sprint(shard)
	}
	return digits
}

func sorted(digits string) string {
	b := []byte(digits)
	slices.Sort(b)
	return string(b)
}

func (p *pair) is(what string, equal bool) {
	p.t.Helper()
	if !equal {
		p.t.Fatalf("%s differs from the model\n%q", what, p.called)
	}
}

func same[E any](p *pair, what string, got, want []E) {
	p.t.Helper()
	if len(got)+len(want) > 0 && !reflect.DeepEqual(got, want) {
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
