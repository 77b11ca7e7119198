package clienttest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/group"
	"github.com/vivarium-go/vivarium/embed/lock"
	"github.com/vivarium-go/vivarium/embed/partition"
	"github.com/vivarium-go/vivarium/embed/task"
)

// kazoo's recipes and those of this library work on the same paths at the same time.
func TestMixedKazoo(t *testing.T) {
	t.Parallel()
	interpreter := python(t)
	m := newMix(t)
	p := m.kazooRecipes(interpreter)
	t.Run("counters", func(t *testing.T) {
		m := m.with(t)
		for _, w := range []struct {
			name  string
			width embed.Width
		}{{"Text", embed.Text}, {"Int32", embed.Int32}} {
			path := "/counters/" + w.name
			client := m.asks(p, "add", w.name, path, "50", "1")
			m.counters(path, w.width, 50, client, client)
		}
	})
	t.Run("parties", func(t *testing.T) { m.with(t).parties(p) })
	t.Run("barriers", func(t *testing.T) {
		m := m.with(t)
		m.gates(p, "/gates/")
		for i := range 6 {
			path := fmt.Sprint("/barriers/", i)
			all := []participant{
				m.inside(0, path, 4), m.outside(p, "a", path, 4),
				m.inside(1, path, 4), m.outside(p, "b", path, 4),
			}
			m.together(path, slices.Concat(all[i%4:], all[:i%4]))
		}
	})
	t.Run("queues", func(t *testing.T) { m.with(t).kazooQueues(p) })
	t.Run("partitions", func(t *testing.T) { m.with(t).kazooPartitions(p) })
	t.Run("golden bytes", func(t *testing.T) { m.with(t).kazooBytes(p) })
	t.Run("killed", func(t *testing.T) { m.with(t).kazooKilled(p) }) // the last one
}

// kazooBytes compares what kazoo writes with the golden files of packages value and task. The names
// of its parties are random, and their data is the identifier.
func (m *mix) kazooBytes(p *process) {
	var numbers []string
	for _, kind := range []string{"Text", "Int32"} {
		for _, n := range []string{"7", "-2", "2147483647"} {
			path := "/golden-" + kind + n
			p.request(m.t, "add", kind, path, "1", n)
			numbers = append(numbers, path)
		}
	}
	m.record("value/testdata/kazoo.golden", numbers...)
	for _, priority := range []string{"100", "0", "999"} {
		p.request(m.t, "put", "Queue", "/golden-Queue", priority, "abc")
		p.request(m.t, "put", "LockingQueue", "/golden-LockingQueue", priority, "abc")
	}
	m.record("task/testdata/kazoo.golden", "/golden-Queue", "/golden-LockingQueue/entries")
}

// kazooKilled kills the process of the clients. What they had is free when their sessions end: a
// member of this library takes it over.
func (m *mix) kazooKilled(p *process) {
	const party, path = "/killed/party", "/killed/queue"
	o := group.Options{Layout: group.ShallowParty}
	g, err := group.Watch(m.ctx(), m.sessions[0], party, o)
	must(m.t, err)
	p.request(m.t, "join", "victim", "ShallowParty", party, "victim")
	m.lists("a Group", []string{"victim"}, ids(g))
	q := task.New(m.sessions[0], path, task.Options{})
	name, err := q.Put(m.ctx(), []byte("abc"), task.PutOptions{})
	must(m.t, err)
	if got := p.request(m.t, "claim", "victim-queue", path); got != "abc" {
		m.t.Errorf("kazoo claims %q", got)
	}
	must(m.t, p.kill())
	claimed, err := q.Claim(m.ctx())
	must(m.t, err)
	if claimed.Name() != name || string(claimed.Data()) != "abc" {
		m.t.Errorf("claimed %q of %s", claimed.Data(), claimed.Name())
	}
	must(m.t, claimed.Finish())
	m.lists("a Group", nil, ids(g))
}

// parties checks that the members of both of kazoo's parties and of a group list one another.
func (m *mix) parties(p *process) {
	kinds := map[string]group.Layout{"Party": group.Party, "ShallowParty": group.ShallowParty}
	for kind, layout := range kinds {
		dir, o := "/parties/"+kind, group.Options{Layout: layout}
		g, err := group.Watch(m.ctx(), m.sessions[0], dir, o)
		must(m.t, err)
		here := group.Join(m.Node(2), dir, "here", nil, o)
		p.request(m.t, "join", kind, kind, dir, "kazoo-1")
		p.request(m.t, "join", kind+"2", kind, dir, "kazoo-2")
		theirs := func() []string { return list(p.request(m.t, "members", kind, dir)) }
		both := func(want ...string) {
			m.t.Helper()
			m.lists("a Group", want, ids(g))
			m.lists(kind, want, theirs)
		}
		both("here", "kazoo-1", "kazoo-2")
		p.request(m.t, "leave", kind)
		both("here", "kazoo-2")
		must(m.t, here.Close())
		both("kazoo-2")
		must(m.t, g.Close())
	}
}

// kazooQueues puts tasks into kazoo's queues and takes them out, on both sides.
func (m *mix) kazooQueues(p *process) {
	kinds := map[string]task.Layout{"Queue": task.Entries, "LockingQueue": task.Locking}
	for kind, layout := range kinds {
		path := "/queues/" + kind
		q := task.New(m.sessions[0], path, task.Options{Layout: layout})
		put := func() {
			p.request(m.t, "put", kind, path, "100", "third")
			_, err := q.Put(m.ctx(), []byte("second"), task.PutOptions{Priority: -7}) // 93 in kazoo
			must(m.t, err)
			p.request(m.t, "put", kind, path, "5", "first")
			_, err = q.Put(m.ctx(), []byte("fourth"), task.PutOptions{})
			must(m.t, err)
		}
		put()
		m.synced(0, path)
		m.takes(q, "first", "second", "third", "fourth")
		put()
		for _, want := range []string{"first", "second", "third", "fourth"} {
			if got := p.request(m.t, "take", kind, path); got != want {
				m.t.Errorf("%s: the task is %q, want %q", kind, got, want)
			}
		}
		ours := m.claims(q)
		if layout == task.Entries { // whose clients do not respect claims
			ours.stop()
			ours = m.consumes(q.Take)
		}
		theirs := numbered("kazoo", 40)
		names, puts := m.puts(q, "here", 40)
		m.once(slices.Concat(names, theirs), []deed{
			puts, m.asks(p, append([]string{"put", kind, path, "100"}, theirs...)...),
		}, []consumer{ours, m.client(p, kind, kind, path), m.client(p, kind+"2", kind, path)})
	}
	m.kazooClaims(p, "/queues/claims")
}

// kazooClaims checks that callers and clients respect one another's claims.
func (m *mix) kazooClaims(p *process, path string) {
	q := task.New(m.sessions[0], path, task.Options{})
	claim := func(want string) *task.Task {
		m.t.Helper()
		t, err := q.Claim(m.ctx())
		must(m.t, err)
		if got := string(t.Data()); got != want {
			m.t.Errorf("claimed %q, want %q", got, want)
		}
		return t
	}
	p.request(m.t, "put", "LockingQueue", path, "100", "x", "y", "z")
	m.synced(0, path)
	x := claim("x")
	if got := p.request(m.t, "claim", "holder", path); got != "y" {
		m.t.Errorf("kazoo claimed %q", got)
	}
	m.synced(0, path)
	z := claim("z")
	if got := p.request(m.t, "release", "holder"); got != "True" {
		m.t.Errorf("released: %s", got)
	}
	must(m.t, claim("y").Finish())
	must(m.t, x.Retry(0))
	must(m.t, z.Finish())
	if got := p.request(m.t, "take", "LockingQueue", path); got != "x" {
		m.t.Errorf("kazoo takes %q", got)
	}
}

// kazooPartitions spreads parts over members of kazoo and of this library, who come and go. Each of
// them has an ephemeral for a part while it works on it.
func (m *mix) kazooPartitions(p *process) {
	const dir, busy, settle = "/partitions", "/busy", 200 * time.Millisecond
	parts := numbered("part", 7)
	s := m.sessions[0]
	_, err := s.Put(m.ctx(), busy, nil)
	must(m.t, err)
	owners := func(members ...string) {
		m.t.Helper()
		want := make(map[string]string)
		for i, part := range parts {
			want[part] = members[i%len(members)]
		}
		m.Until(fmt.Sprintf("%v to own the parts", members), func() bool {
			got := make(map[string]string)
			names, _, _ := s.Children(m.t.Context(), busy)
			for _, part := range names {
				if data, _, err := s.Get(m.t.Context(), busy+"/"+part); err == nil {
					got[part] = string(data)
				}
			}
			return maps.Equal(got, want)
		})
	}
	var running sync.WaitGroup
	join := func(name string, i int) (leave func()) {
		ctx, cancel := context.WithCancel(m.t.Context())
		mine := m.sessions[i]
		work := func(ctx context.Context, part string, _ *lock.Hold) error {
			_, err := mine.Create(m.t.Context(), busy+"/"+part, []byte(name), embed.Ephemeral)
			if err != nil {
				m.t.Errorf("%s begins with %s: %v", name, part, err)
				return nil
			}
			<-ctx.Done()
			if err := mine.Delete(m.t.Context(), busy+"/"+part, embed.AnyVersion); err != nil {
				m.t.Errorf("%s ends with %s: %v", name, part, err)
			}
			return nil
		}
		running.Go(func() {
			o := partition.Options{ID: name, Settle: settle, Kazoo: true}
			if err := partition.Run(ctx, m.Node(m.Members()[i]), dir, parts, o, work); ctx.Err() == nil {
				m.t.Errorf("%s: %v", name, err)
			}
		})
		return cancel
	}
	kazoo := func(name string) {
		words := []string{"partition", name, dir, busy, fmt.Sprint(settle.Seconds())}
		p.request(m.t, append(words, parts...)...)
	}
	kazoo("b")
	leaveA := join("a", 0)
	owners("a", "b")
	leaveD := join("d", 1)
	kazoo("c")
	owners("a", "b", "c", "d")
	p.request(m.t, "finish", "b")
	owners("a", "c", "d")
	leaveA()
	owners("c", "d")
	p.request(m.t, "finish", "c")
	owners("d")
	leaveD()
	running.Wait()
}
