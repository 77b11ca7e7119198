package clienttest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/discovery"
	"github.com/vivarium-go/vivarium/embed/group"
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
