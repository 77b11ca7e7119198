package clienttest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/discovery"
	"github.com/vivarium-go/vivarium/embed/group"
	"github.com/vivarium-go/vivarium/embed/lock"
	"github.com/vivarium-go/vivarium/embed/task"
	"github.com/vivarium-go/vivarium/embed/value"
)

// Curator's recipes, kazoo's and those of this library work on the same paths at the same time.
func TestMixedCurator(t *testing.T) {
	t.Parallel()
	run := curator(t, "testdata/Mixed.java", "curator-x-discovery.jar")
	interpreter := python(t)
	m := newMix(t)
	p := m.start("Curator", run(m.clients(sessionTimeout, []embed.MemberID{2, 3, 1})...))
	k := m.kazooRecipes(interpreter)
	t.Run("counters", func(t *testing.T) {
		m := m.with(t)
		for _, c := range []struct {
			kind  string
			width embed.Width
		}{{"SharedCount", embed.Int32}, {"Integer", embed.Int32}, {"Long", embed.Int64}} {
			path := "/counters/" + c.kind
			client := m.asks(p, "add", c.kind, path, "30", "1")
			m.counters(path, c.width, 30, client, client)
		}
		// kazoo's counter creates its znode without data, on which a SharedCount fails.
		const all = "/counters/all"
		must(t, value.NewCounter(m.sessions[0], all, embed.Int32).Set(m.ctx(), 0))
		m.counters(all, embed.Int32, 30, m.asks(p, "add", "SharedCount", all, "30", "1"),
			m.asks(p, "add", "Integer", all, "30", "1"), m.asks(k, "add", "Int32", all, "30", "1"))
	})
	t.Run("values", func(t *testing.T) { m.with(t).curatorValues(p) })
	t.Run("ids", func(t *testing.T) { m.with(t).curatorIDs(p) })
	t.Run("keys", func(t *testing.T) { m.with(t).curatorKeys(p) })
	t.Run("groups", func(t *testing.T) { m.with(t).curatorGroup(p) })
	t.Run("barriers", func(t *testing.T) {
		m := m.with(t)
		m.gates(p, "/gates/")
		for i := range 5 {
			path := fmt.Sprint("/barriers/", i)
			all := []participant{
				m.inside(0, path, 5), m.outside(p, "a", path, 5), m.inside(1, path, 5),
				m.outside(p, "b", path, 5), m.outside(k, "c", path, 5),
			}
			m.together(path, slices.Concat(all[i:], all[:i]))
		}
	})
	t.Run("queues", func(t *testing.T) { m.with(t).curatorQueues(p) })
	t.Run("discovery", func(t *testing.T) { m.with(t).curatorDiscovery(p) })
	t.Run("golden bytes", func(t *testing.T) { m.with(t).curatorBytes(p) })
	t.Run("killed", func(t *testing.T) { m.with(t).curatorKilled(p) }) // the last one
}

// curatorValues appends to one text from both sides, and both read all of it.
func (m *mix) curatorValues(p *process) {
	const path, times = "/values/text", 20
	p.request(m.t, "value", "text", path, "|")
	var texts value.Codec[string]
	all := []deed{m.asks(p, "append", "text", "b", fmt.Sprint(times))}
	for _, s := range m.sessions {
		all = append(all, func() error {
			v := value.New(s, path, texts)
			for range times {
				_, err := v.Update(m.ctx(), func(now string, _ bool) (string, error) {
					return now + "a", nil
				})
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	m.do(all...)
	now, err := value.New(m.synced(0, path), path, texts).Get(m.ctx())
	must(m.t, err)
	a, b := strings.Count(now.Value, "a"), strings.Count(now.Value, "b")
	if a != len(m.sessions)*times || b != times || now.Value[0] != '|' {
		m.t.Errorf("%d times a, %d times b in %q", a, b, now.Value)
	}
	m.Until("Curator to read all", func() bool {
		return p.request(m.t, "read", "text") == now.Value
	})
}

// curatorIDs takes ids on both sides. A CachedAtomicLong takes blocks of a DistributedAtomicLong, as
// a Sequence does of its Counter.
//
// A DistributedIdQueue has names of its own, queue-|<id>|<number>, in which task.New has no layout:
// its callers give no ids. A queue of the layout Plain leaves such znodes alone.
func (m *mix) curatorIDs(p *process) {
	const path, n = "/ids", 55
	var mu sync.Mutex
	seen := make(map[string]int)
	note := func(ids ...string) {
		mu.Lock()
		defer mu.Unlock()
		for _, id := range ids {
			seen[id]++
		}
	}
	ids := value.NewSequence(m.Node(1), path, 7)
	m.do(func() error {
		text, err := p.begin(m.t, "ids", path, fmt.Sprint(n)).wait()
		note(list(text)...)
		return err
	}, func() error {
		for range n {
			id, err := ids.Next(m.ctx())
			if err != nil {
				return err
			}
			note(fmt.Sprint(id))
		}
		return ids.Close()
	})
	if len(seen) != 2*n {
		m.t.Errorf("%d ids are different, want %d: %v", len(seen), 2*n, seen)
	}
}

// curatorKeys adds to a number that the lock of a key protects, on both sides.
func (m *mix) curatorKeys(p *process) {
	const path, times = "/number", 15
	_, err := m.sessions[0].Put(m.ctx(), path, []byte("0"))
	must(m.t, err)
	lockPath := lock.NewKeys(m.sessions[0], "/keys").Path("a/b")
	all := []deed{m.asks(p, "addLocked", lockPath, path, fmt.Sprint(times))}
	for _, s := range m.sessions {
		keys := lock.NewKeys(s, "/keys")
		all = append(all, func() error {
			for range times {
				if err := m.addLocked(s, keys, path); err != nil {
					return err
				}
			}
			return nil
		})
	}
	m.do(all...)
	data, _, err := m.synced(0, path).Get(m.ctx(), path)
	must(m.t, err)
	if want := fmt.Sprint(len(all) * times); string(data) != want {
		m.t.Errorf("%s, want %s", data, want)
	}
}

func (m *mix) addLocked(s *embed.Session, keys *lock.Keys, path string) error {
	h, err := keys.Lock(m.ctx(), "a/b")
	if err != nil {
		return err
	}
	_, err = s.Sync(m.ctx(), path)
	must(m.t, err)
	data, _, err := s.Get(m.ctx(), path)
	must(m.t, err)
	n, err := strconv.Atoi(string(data))
	must(m.t, err)
	next := fmt.Append(nil, n+1)
	_, err = s.Multi(m.ctx(), lock.Guard(h), embed.OpSet(path, next, embed.AnyVersion))
	return errors.Join(err, h.Release())
}

// curatorBytes compares what Curator writes with the golden files of packages value and task. A
// GroupMember's data is its caller's, as it is, and its name is the member's id.
func (m *mix) curatorBytes(p *process) {
	var numbers []string
	for _, kind := range []string{"SharedCount", "Integer", "Long"} {
		for _, n := range []string{"7", "-2", "2147483647"} {
			path := "/golden-" + kind + n
			p.request(m.t, "add", kind, path, "1", n)
			numbers = append(numbers, path)
		}
	}
	m.record("value/testdata/curator.golden", numbers...)

	for _, c := range []struct{ kind, order string }{
		{"Plain", "0"}, {"Simple", "0"},
		{"Priority", "0"}, {"Priority", "255"}, {"Priority", "-2"}, {"Priority", "-2147483648"},
		{"Delay", "1764000000018"}, {"Delay", "4000000000000"},
	} {
		p.request(m.t, "put", c.kind, "/golden-"+c.kind, c.order, "abc")
	}
	p.request(m.t, "putMulti", "/golden-Multi", "x", "yy", "z")
	m.record("task/testdata/curator.golden", "/golden-Plain", "/golden-Simple",
		"/golden-Priority", "/golden-Delay", "/golden-Multi")
}

// curatorKilled kills the process of the clients. What they had is free when their sessions end: a
// member of this library takes it over.
func (m *mix) curatorKilled(p *process) {
	s := m.sessions[0]
	keys := lock.NewKeys(s, "/killed/keys")
	if got := p.request(m.t, "lock", keys.Path("k")); got != "true" {
		m.t.Fatalf("Curator locks: %s", got)
	}
	m.synced(0, "/killed")
	if _, err := keys.TryLock(m.ctx(), "k"); !errors.Is(err, lock.ErrHeld) {
		m.t.Errorf("beside Curator's lock: %v", err)
	}
	g, err := group.Watch(m.ctx(), s, "/killed/group", group.Options{})
	must(m.t, err)
	p.request(m.t, "member", "victim", "/killed/group", "victim", "x")
	m.lists("a Group", []string{"victim"}, ids(g))
	q := task.New(s, "/killed/queue", task.Options{Layout: task.Plain})
	name, err := q.Put(m.ctx(), []byte("abc"), task.PutOptions{})
	must(m.t, err)
	p.request(m.t, "consume", "stuck", "Stuck", "/killed/queue")
	m.Until("Curator to work", func() bool { return p.request(m.t, "got", "stuck") == "abc" })
	must(m.t, p.kill())
	h, err := keys.Lock(m.ctx(), "k")
	must(m.t, err)
	must(m.t, h.Release())
	m.lists("a Group", nil, ids(g))
	claimed, err := q.Claim(m.ctx())
	must(m.t, err)
	if claimed.Name() != name || string(claimed.Data()) != "abc" {
		m.t.Errorf("claimed %q of %s", claimed.Data(), claimed.Name())
	}
	must(m.t, claimed.Finish())
}

// curatorGroup checks that Curator's members and those of a group list one another.
func (m *mix) curatorGroup(p *process) {
	const dir = "/group"
	g, err := group.Watch(m.ctx(), m.sessions[0], dir, group.Options{})
	must(m.t, err)
	here := group.Join(m.Node(2), dir, "here", []byte("1"), group.Options{})
	p.request(m.t, "member", "member", dir, "member", "2")
	p.request(m.t, "node", "node", dir+"/node", "3")
	p.request(m.t, "member", "witness", dir, "witness", "4")
	there := group.Announce(m.Node(3), dir+"/there", []byte("5"), group.Options{})
	ours := func() (list []string) {
		for _, member := range g.Members() {
			list = append(list, member.ID+":"+string(member.Data))
		}
		return list
	}
	theirs := func() []string { return list(p.request(m.t, "members", "witness")) }
	both := func(want ...string) {
		m.t.Helper()
		m.lists("a Group", want, ours)
		m.lists("a GroupMember", want, theirs)
	}
	both("here:1", "member:2", "node:3", "there:5", "witness:4")
	must(m.t, here.Set(m.ctx(), []byte("one")))
	p.request(m.t, "data", "member", "two")
	p.request(m.t, "data", "node", "three")
	must(m.t, there.Set(m.ctx(), []byte("five")))
	both("here:one", "member:two", "node:three", "there:five", "witness:4")
	p.request(m.t, "close", "member")
	must(m.t, there.Close())
	both("here:one", "node:three", "witness:4")
	p.request(m.t, "close", "node")
	must(m.t, here.Close())
	both("witness:4")
	p.request(m.t, "close", "witness")
	m.lists("a Group", nil, ours)
}

// curatorQueues puts tasks into Curator's queues and takes them out, on both sides.
func (m *mix) curatorQueues(p *process) {
	hour := time.Now().Add(-time.Hour) // so they are due
	at := func(i int) time.Time { return hour.Add(time.Duration(i) * time.Minute) }
	ms := func(i int) string { return fmt.Sprint(at(i).UnixMilli()) }
	for _, c := range []struct {
		kind   string
		layout task.Layout
		order  [4]string // of what Curator puts as the first to fourth task; only 0 and 2 are used
		ours   [4]task.PutOptions
		sorted bool // by that order, not by that of arrival
	}{
		{kind: "Plain", layout: task.Plain, order: [4]string{"0", "", "0"}},
		{kind: "Simple", layout: task.Simple, order: [4]string{"0", "", "0"}},
		{
			kind: "Priority", layout: task.Priority, sorted: true,
			order: [4]string{"-2147483648", "", "0"},
			ours:  [4]task.PutOptions{1: {Priority: -3}, 3: {Priority: 2147483647}},
		},
		{
			kind: "Delay", layout: task.Delay, sorted: true,
			order: [4]string{ms(0), "", ms(2)},
			ours:  [4]task.PutOptions{1: {At: at(1)}, 3: {At: at(3)}},
		},
	} {
		path := "/queues/" + c.kind
		q := task.New(m.sessions[0], path, task.Options{Layout: c.layout})
		tasks := numbered("task", 4)
		put := func() {
			m.t.Helper()
			arrival := []int{0, 1, 2, 3}
			if c.sorted {
				arrival = []int{3, 2, 1, 0}
			}
			for _, i := range arrival {
				if i%2 == 0 {
					p.request(m.t, "put", c.kind, path, c.order[i], tasks[i])
					continue
				}
				_, err := q.Put(m.ctx(), []byte(tasks[i]), c.ours[i])
				must(m.t, err)
			}
		}
		put()
		m.synced(0, path)
		m.takes(q, tasks...)
		put()
		client := m.client(p, c.kind, c.kind, path)
		m.Until("Curator to consume", func() bool { return len(client.got()) >= len(tasks) })
		if got := client.stop(); !slices.Equal(got, tasks) {
			m.t.Errorf("%s: Curator consumes %v", c.kind, got)
		}

		ours := m.claims(q)
		if c.layout == task.Simple { // whose clients do not respect claims
			ours.stop()
			ours = m.consumes(q.Take)
		}
		theirs := numbered("curator", 40)
		names, puts := m.puts(q, "here", 40)
		now := "0"
		if c.layout == task.Delay {
			now = ms(0)
		}
		m.once(slices.Concat(names, theirs), []deed{
			puts, m.asks(p, append([]string{"put", c.kind, path, now}, theirs...)...),
		}, []consumer{ours, m.client(p, c.kind, c.kind, path), m.client(p, c.kind+"2", c.kind, path)})
	}
	m.notDue(p, "/queues/notDue")
	m.several(p, "/queues/several")
}

// notDue checks that a task that is not due waits, whoever has put it.
func (m *mix) notDue(p *process, path string) {
	m.t.Helper()
	q := task.New(m.sessions[0], path, task.Options{Layout: task.Delay})
	later := time.Now().Add(time.Hour)
	p.request(m.t, "put", "Delay", path, fmt.Sprint(later.UnixMilli()), "theirs-later")
	_, err := q.Put(m.ctx(), []byte("ours-later"), task.PutOptions{At: later})
	must(m.t, err)
	client := m.client(p, "notDue", "Delay", path)
	p.request(m.t, "put", "Delay", path, "1500000000000", "theirs-now")
	m.Until("Curator to consume", func() bool { return len(client.got()) > 0 })
	if got := client.stop(); !slices.Equal(got, []string{"theirs-now"}) {
		m.t.Errorf("Curator consumes %v", got)
	}
	_, err = q.Put(m.ctx(), []byte("ours-now"), task.PutOptions{})
	must(m.t, err)
	m.takes(q, "ours-now")
	names, _, err := m.synced(0, path).Children(m.ctx(), path)
	must(m.t, err)
	if len(names) != 2 {
		m.t.Errorf("left are %v", names)
	}
}

// several claims what Curator has put at once.
func (m *mix) several(p *process, path string) {
	m.t.Helper()
	q := task.New(m.sessions[0], path, task.Options{Layout: task.Plain})
	p.request(m.t, "putMulti", path, "x", "y", "z")
	claim, err := q.Claim(m.ctx())
	must(m.t, err)
	if got := fmt.Sprintf("%s", claim.Items()); got != "[x y z]" {
		m.t.Errorf("claimed %s", got)
	}
	client := m.client(p, "several", "Plain", path) // which must respect the claim
	_, err = q.Put(m.ctx(), []byte("next"), task.PutOptions{})
	must(m.t, err)
	m.Until("Curator to consume", func() bool { return len(client.got()) > 0 })
	must(m.t, claim.Finish())
	if got := client.stop(); !slices.Equal(got, []string{"next"}) {
		m.t.Errorf("Curator consumes %v", got)
	}
}

// curatorDiscovery registers instances with Curator and in the process, and both find all of them.
// What Curator has written for its instances are the golden files of package discovery.
func (m *mix) curatorDiscovery(p *process) {
	const base, golden = "/services", "../../discovery/testdata/curator"
	theirs, err := discovery.Watch(m.ctx(), m.sessions[0], base, "golden")
	must(m.t, err)
	names := list(p.request(m.t, "cases"))
	for _, name := range names {
		p.request(m.t, "register", name, base)
		path := base + "/golden/" + name
		data, _, err := m.synced(0, path).Get(m.ctx(), path)
		must(m.t, err)
		file := filepath.Join(golden, name+".json")
		if *update {
			must(m.t, os.WriteFile(file, data, 0o644))
		}
		recorded, err := os.ReadFile(file)
		must(m.t, err)
		if string(data) != string(recorded) {
			m.t.Errorf("%s: Curator writes\n%s, not\n%s", name, data, recorded)
		}
	}
	lists := func(n int) {
		m.t.Helper()
		what := fmt.Sprintf("Watch to list %d instances", n)
		m.Until(what, func() bool { return len(theirs.Instances()) == n })
	}
	lists(len(names))
	if bad := theirs.Unreadable(); len(bad) > 0 {
		m.t.Errorf("unreadable: %v", bad)
	}
	p.request(m.t, "close", "full")
	lists(len(names) - 1)

	spec, err := discovery.ParseURI("{scheme}://{address}:{port}/{[}x{]}")
	must(m.t, err)
	started := time.UnixMilli(1767225600123)
	var ours []*discovery.Registration
	for _, in := range []discovery.Instance{
		{ID: "a", Address: "10.0.0.1", Port: 80, SSLPort: 443, Registered: started, URI: spec},
		{ID: "b", Address: "h", Payload: []byte(`"text"`)},
		{ID: "c", Address: "h", Payload: []byte(`{"zone":"eu","n":[1]}`)},
		{ID: "d", Address: "h", Payload: []byte(`{"zone":"us","weight":1}`), Class: "Mixed$Payload"},
		{ID: "e", Address: "h", Payload: []byte(`["java.util.ArrayList",[1,2]]`)},
		{ID: "f", Address: "h", Payload: []byte(`3000000000`)},
	} {
		in.Name = "ours"
		ours = append(ours, discovery.Register(m.Node(2), base, in))
	}
	find := func() []string { return list(p.request(m.t, "instances", base, "ours")) }
	want := []string{
		"a|10.0.0.1|80|443|null|1767225600123|DYNAMIC|https://10.0.0.1:80/{x}|true",
		"b|h|null|null|text|0|DYNAMIC|null|true",
		"c|h|null|null|{zone=eu;n=[1]}|0|DYNAMIC|null|true",
		"d|h|null|null|us1[]|0|DYNAMIC|null|true",
		"e|h|null|null|[1;2]|0|DYNAMIC|null|true",
		"f|h|null|null|3000000000|0|DYNAMIC|null|true",
	}
	m.lists("Curator", want, find)
	disable := func(in *discovery.Instance) { in.Disabled, in.Port = true, 81 }
	must(m.t, ours[1].Update(m.ctx(), disable))
	want[1] = "b|h|81|null|text|0|DYNAMIC|null|false"
	m.lists("Curator", want, find)
	for _, r := range ours[1:] {
		must(m.t, r.Close())
	}
	m.lists("Curator", want[:1], find)

	// One array without its class hides all instances from Curator.
	array := []byte(`{"name":"ours","id":"z","payload":[1,2]}`)
	_, err = m.sessions[0].Put(m.ctx(), base+"/ours/z", array)
	must(m.t, err)
	m.synced(0, base)
	if text, err := p.begin(m.t, "instances", base, "ours").wait(); err == nil {
		m.t.Errorf("Curator lists %q beside an array without its class", text)
	}
}
