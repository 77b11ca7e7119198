package clienttest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/barrier"
	"github.com/vivarium-go/vivarium/embed/group"
	"github.com/vivarium-go/vivarium/embed/task"
	"github.com/vivarium-go/vivarium/embed/value"
	"github.com/vivarium-go/vivarium/internal/testkit"
)

// Here are the parts that TestMixedKazoo and TestMixedCurator have in common: each recipe with
// callers in the process and clients on one path, at the same time.

// A mix is an ensemble with a session on each member, and a program with clients.
type mix struct {
	*ensemble
	sessions []*embed.Session
}

func newMix(t *testing.T) *mix {
	t.Helper()
	m := &mix{ensemble: startEnsemble(t)}
	for _, id := range m.Members() {
		m.sessions = append(m.sessions, m.Session(id, embed.SessionOptions{Timeout: sessionTimeout}))
	}
	return m
}

// with returns the mix for a subtest.
func (m *mix) with(t *testing.T) *mix {
	e := *m.ensemble
	e.t = t
	return &mix{ensemble: &e, sessions: m.sessions}
}

// Until is the ensemble's, for the test of the mix.
func (m *mix) Until(what string, cond func() bool) {
	m.t.Helper()
	testkit.Until(m.t, what, cond)
}

// kazooRecipes starts kazoo's recipes.
func (m *mix) kazooRecipes(python string) *process {
	m.t.Helper()
	args := []string{"testdata/mixed_kazoo.py"}
	args = append(args, m.clients(sessionTimeout, []embed.MemberID{2, 3, 1})...)
	return m.start("kazoo", exec.Command(python, args...))
}

// An answer is what a program answers to a request.
type answer struct {
	p       *process
	request string
	ch      <-chan string
}

// begin sends a request to a program that runs requests side by side.
func (p *process) begin(t *testing.T, words ...string) answer {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	ch := make(chan string, 1)
	p.answers = append(p.answers, ch)
	request := strings.Join(words, " ")
	_, err := fmt.Fprintln(p.in, len(p.answers)-1, request)
	must(t, err)
	return answer{p, request, ch}
}

// wait returns the answer.
func (a answer) wait() (string, error) {
	select {
	case text := <-a.ch:
		result, ok := strings.CutPrefix(text, "= ")
		if !ok {
			return "", fmt.Errorf("%s answers %q to %q", a.p.who, text, a.request)
		}
		return result, nil
	case <-time.After(patience):
		return "", fmt.Errorf("%s does not answer to %q", a.p.who, a.request)
	}
}

// request returns a program's answer to a request.
func (p *process) request(t *testing.T, words ...string) string {
	t.Helper()
	text, err := p.begin(t, words...).wait()
	must(t, err)
	return text
}

// list returns the words of an answer that is a list.
func list(text string) []string {
	return slices.DeleteFunc(strings.Split(text, ","), func(s string) bool { return s == "" })
}

// ctx returns a context that ends after patience.
func (m *mix) ctx() context.Context {
	ctx, cancel := context.WithTimeout(m.t.Context(), patience)
	m.t.Cleanup(cancel)
	return ctx
}

// synced returns a session that shows what anybody has written so far.
func (m *mix) synced(i int, path string) *embed.Session {
	m.t.Helper()
	s := m.sessions[i%len(m.sessions)]
	_, err := s.Sync(m.ctx(), path)
	must(m.t, err)
	return s
}

// A deed is something that a caller or a client does, and that ends.
type deed func() error

// do does all deeds at once.
func (m *mix) do(all ...deed) {
	m.t.Helper()
	m.begin(all...)()
}

// begin begins all deeds. It returns a function that waits for them.
func (m *mix) begin(all ...deed) (wait func()) {
	var running sync.WaitGroup
	for _, s := range all {
		running.Go(func() {
			if err := s(); err != nil {
				m.t.Error(err)
			}
		})
	}
	return running.Wait
}

// asks returns a deed that is a request to a program.
func (m *mix) asks(p *process, words ...string) deed {
	return func() error {
		_, err := p.begin(m.t, words...).wait()
		return err
	}
}

// counters adds to one number from the process and with clients. Each of them adds times times.
func (m *mix) counters(path string, w embed.Width, times int, clients ...deed) {
	m.t.Helper()
	ctx, all := m.ctx(), clients
	for _, s := range m.sessions {
		all = append(all, func() error {
			c := value.NewCounter(s, path, w)
			for range times {
				if _, err := c.Add(ctx, 1); err != nil {
					return err
				}
			}
			return nil
		})
	}
	m.do(all...)
	got, err := value.NewCounter(m.synced(0, path), path, w).Get(ctx)
	must(m.t, err)
	if want := int64(len(all) * times); got != want {
		m.t.Errorf("%s: %d after %d additions", path, got, want)
	}
}

// lists waits until a list of members is the one that is wanted.
func (m *mix) lists(who string, want []string, members func() []string) {
	m.t.Helper()
	slices.Sort(want)
	what := fmt.Sprintf("%s to list %v", who, want)
	m.Until(what, func() bool { return slices.Equal(members(), want) })
}

// ids returns a function that returns the sorted ids of a group's members.
func ids(g *group.Group) func() []string {
	return func() (list []string) {
		for _, member := range g.Members() {
			list = append(list, member.ID)
		}
		slices.Sort(list)
		return list
	}
}

// gates lets callers and clients wait at a gate that the other side shuts and opens.
func (m *mix) gates(p *process, path string) {
	m.t.Helper()
	for i, ours := range []bool{true, false} {
		path := fmt.Sprint(path, i)
		gate := barrier.NewGate(m.synced(0, "/"), path)
		if ours {
			must(m.t, gate.Shut(m.ctx()))
		} else {
			p.request(m.t, "shut", path)
		}
		var opened atomic.Bool
		passes := func(wait deed) deed {
			return func() error {
				if err := wait(); err != nil {
					return err
				}
				if !opened.Load() {
					return fmt.Errorf("%s: somebody passed a gate that is shut", path)
				}
				return nil
			}
		}
		all := []deed{passes(m.asks(p, "wait", path)), passes(m.asks(p, "wait", path))}
		for j := range m.sessions {
			s := m.synced(j, path)
			all = append(all, passes(func() error { return barrier.NewGate(s, path).Wait(m.ctx()) }))
		}
		wait := m.begin(all...)
		opened.Store(true)
		if ours {
			p.request(m.t, "open", path)
		} else {
			must(m.t, gate.Open(m.ctx()))
		}
		wait()
	}
}

// A participant of a double barrier enters and leaves.
type participant struct {
	who          string
	enter, leave deed
}

// inside returns a caller that takes part in a double barrier.
func (m *mix) inside(i int, path string, n int) participant {
	var pass *barrier.Pass
	ctx, s := m.ctx(), m.sessions[i%len(m.sessions)]
	return participant{
		who: "a caller",
		enter: func() (err error) {
			pass, err = barrier.Enter(ctx, s, path, n)
			return err
		},
		leave: func() error { return pass.Leave(ctx) },
	}
}

// outside returns a client that takes part in a double barrier.
func (m *mix) outside(p *process, name, path string, n int) participant {
	return participant{p.who, m.asks(p, "enter", name, path, fmt.Sprint(n)), m.asks(p, "exit", name)}
}

// together lets the participants enter, and then leave. The last one does so when all others wait
// for it.
func (m *mix) together(path string, all []participant) {
	m.t.Helper()
	inside := func() (n int) {
		names, _, _ := m.sessions[0].Children(m.t.Context(), path)
		for _, name := range names {
			if name != "ready" {
				n++
			}
		}
		return n
	}
	phase := func(what string, do func(participant) deed, othersWait func() bool) {
		m.t.Helper()
		var last atomic.Bool
		guarded := func(p participant) deed {
			return func() error {
				if err := do(p)(); err != nil {
					return fmt.Errorf("%s of %s: %w", what, p.who, err)
				}
				if !last.Load() {
					return fmt.Errorf("%s: %s does not wait to %s", path, p.who, what)
				}
				return nil
			}
		}
		var deeds []deed
		for _, p := range all[1:] {
			deeds = append(deeds, guarded(p))
		}
		wait := m.begin(deeds...)
		m.Until("all others to "+what, othersWait)
		last.Store(true)
		must(m.t, do(all[0])())
		wait()
	}
	waiting := func() bool { return inside() == len(all)-1 }
	phase("enter", func(p participant) deed { return p.enter }, waiting)
	// The last one is still there, and maybe another one, for which the others wait.
	phase("leave", func(p participant) deed { return p.leave }, func() bool { return inside() <= 2 })
}

// A consumer takes tasks until it is stopped. Then it returns all that it got.
type consumer struct {
	got  func() []string
	stop func() []string
}

// consumes returns a caller that consumes a queue with a function that returns when it got a task.
func (m *mix) consumes(next func(context.Context) ([]byte, error)) consumer {
	ctx, cancel := context.WithCancel(m.ctx())
	var mu sync.Mutex
	var all []string
	got := func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(all)
	}
	var running sync.WaitGroup
	running.Go(func() {
		for ctx.Err() == nil {
			data, err := next(ctx)
			if ctx.Err() == nil && err != nil {
				m.t.Error(err)
				return
			}
			if err == nil {
				mu.Lock()
				all = append(all, string(data))
				mu.Unlock()
			}
		}
	})
	return consumer{got, func() []string {
		cancel()
		running.Wait()
		return got()
	}}
}

// claims returns a caller that claims and finishes the tasks of a queue.
func (m *mix) claims(q *task.Queue) consumer {
	return m.consumes(func(ctx context.Context) ([]byte, error) {
		t, err := q.Claim(ctx)
		if err != nil {
			return nil, err
		}
		return t.Data(), t.Finish()
	})
}

// client returns a client that consumes a queue of a kind.
func (m *mix) client(p *process, name, kind, path string) consumer {
	m.t.Helper()
	p.request(m.t, "consume", name, kind, path)
	return consumer{
		got:  func() []string { return list(p.request(m.t, "got", name)) },
		stop: func() []string { return list(p.request(m.t, "stop", name)) },
	}
}

// once checks that each of the tasks reaches one of the consumers, once. It puts them meanwhile.
func (m *mix) once(want []string, put []deed, all []consumer) {
	m.t.Helper()
	m.do(put...)
	total := func() (n int) {
		for _, c := range all {
			n += len(c.got())
		}
		return n
	}
	m.Until("all tasks to be consumed", func() bool { return total() >= len(want) })
	var got []string
	for _, c := range all {
		got = append(got, c.stop()...)
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		m.t.Errorf("consumed %v, want %v", got, want)
	}
}

// puts returns a deed that puts tasks, and their names.
func (m *mix) puts(q *task.Queue, who string, n int) ([]string, deed) {
	names := numbered(who, n)
	return names, func() error {
		for _, name := range names {
			if _, err := q.Put(m.ctx(), []byte(name), task.PutOptions{}); err != nil {
				return err
			}
		}
		return nil
	}
}

// record compares what clients have written below some paths, or at them, with a golden file.
func (m *mix) record(file string, paths ...string) {
	m.t.Helper()
	var b strings.Builder
	for _, path := range paths {
		s := m.synced(0, path)
		names, _, err := s.Children(m.ctx(), path)
		must(m.t, err)
		all := []string{path}
		if len(names) > 0 {
			all = nil
		}
		for _, name := range names {
			all = append(all, path+"/"+name)
		}
		for _, path := range all {
			data, _, err := s.Get(m.ctx(), path)
			must(m.t, err)
			fmt.Fprintf(&b, "%s %x\n", path, data)
		}
	}
	file = "../../" + file
	if *update {
		must(m.t, os.MkdirAll(filepath.Dir(file), 0o755))
		must(m.t, os.WriteFile(file, []byte(b.String()), 0o644))
	}
	recorded, err := os.ReadFile(file)
	must(m.t, err)
	if b.String() != string(recorded) {
		m.t.Errorf("%s: a client writes\n%s, not\n%s", file, b.String(), recorded)
	}
}

// numbered returns n names.
func numbered(who string, n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprint(who, "-", i))
	}
	return names
}

// takes checks that a caller gets these tasks, in this order.
func (m *mix) takes(q *task.Queue, want ...string) {
	m.t.Helper()
	for _, w := range want {
		data, err := q.Take(m.ctx())
		must(m.t, err)
		if string(data) != w {
			m.t.Errorf("the task is %q, want %q", data, w)
		}
	}
}
