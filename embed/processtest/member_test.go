//go:build unix

package processtest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/internal/inside"
	"github.com/vivarium-go/vivarium/embed/lock"
	"github.com/vivarium-go/vivarium/internal/testkit/child"
)

// A member is this process when it runs as a member of an ensemble. It answers each request on its
// own goroutine.
type member struct {
	mu       sync.Mutex
	node     *embed.Node
	faults   *embedtest.Faults
	sessions map[string]*embed.Session
	holds    map[string]*lock.Hold
	armed    atomic.Int32
	ahead    atomic.Int32
	ticks    atomic.Int64
}

// runMember serves requests until standard input ends, because the parent is gone or wants this
// process to end. It then ends without a shutdown.
func runMember() int {
	slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug})))
	m := &member{
		sessions: make(map[string]*embed.Session), holds: make(map[string]*lock.Hold), faults: embedtest.NewFaults(),
	}
	go func() {
		for range time.Tick(time.Millisecond) {
			m.ticks.Add(1)
		}
	}()
	child.Serve(func(q request, say func(reply, bool)) {
		go func() { say(m.answer(&q), false) }()
	})
	return 0
}

func (m *member) answer(q *request) (r reply) {
	ctx := context.Background()
	if q.Within > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, q.Within)
		defer cancel()
	}
	err := m.serve(ctx, q, &r)
	r.Outcome = outcomeOf(err)
	if err != nil {
		r.Error = err.Error()
	}
	return r
}

func (m *member) serve(ctx context.Context, q *request, r *reply) error {
	switch q.Call {
	case callStart:
		return m.start(q.Config)
	case callStacks:
		stacks := make([]byte, 4<<20)
		fmt.Fprintf(os.Stderr, "%s\n", stacks[:runtime.Stack(stacks, true)])
		return nil
	}
	m.mu.Lock()
	node, s := m.node, m.sessions[q.Session]
	m.mu.Unlock()
	if node == nil {
		return errors.New("not started")
	}
	switch q.Call {
	case callReady:
		return node.Ready(ctx)
	case callStatus:
		r.Status, r.Members = node.Status(), node.Members()
		r.Armed, r.Ahead, r.Ticks = int(m.armed.Load()), int(m.ahead.Load()), m.ticks.Load()
		return nil
	case callFailed:
		select {
		case <-node.Done():
			return node.Err()
		case <-ctx.Done():
			return ctx.Err()
		}
	case callDisk:
		d := embedtest.Disk{On: embedtest.DiskCalls(q.Mode)}
		if q.Errno != 0 {
			d.Err = q.Errno
		}
		m.faults.SetDisk(d)
		return nil
	case callSnapshot:
		return (*inside.Node)(node).Parts().Engine.RequestSnapshot()
	case callShutdown:
		return node.Shutdown(ctx)
	case callReload:
		_, err := node.ReloadTLS() // not changed if the node itself has just read them
		return err
	case callOpen:
		return m.open(ctx, node, q, r)
	case callHold, callPaused, callInsist, callRelease:
		return m.ask(ctx, s, q, r)
	}
	if s == nil {
		return fmt.Errorf("no session %q", q.Session)
	}
	return m.use(ctx, s, q, r)
}

func (m *member) start(c *config) error {
	cfg := embed.Config{Dir: c.Dir, ID: c.ID, Members: c.Members, Shards: c.Shards, Tick: c.Tick, MaxSessionTimeout: outlasting,
		Join: c.Join, Advertise: c.Advertise, Name: c.Name, Ephemeral: c.Ephemeral, Voters: c.Voters, TLS: c.TLS}
	m.mu.Lock()
	before := m.node
	m.mu.Unlock()
	if before != nil {
		if err := before.Close(); err != nil {
			return err
		}
	}
	start := embed.Start
	if c.Faults {
		start = func(cfg embed.Config) (*embed.Node, error) { return embedtest.Start(cfg, m.faults) }
	}
	n, err := start(cfg)
	if err != nil {
		return err
	}
	m.mu.Lock()
	m.node = n
	m.mu.Unlock()
	go func() {
		<-n.Done()
		if err := n.Err(); err != nil && !c.Faults {
			// No node may fail in these tests. checkLog looks for this line.
			fmt.Fprintln(os.Stderr, "NODE FAILED:", err)
		}
	}()
	return nil
}

func (m *member) open(ctx context.Context, n *embed.Node, q *request, r *reply) error {
	s, err := n.NewSession(ctx, embed.SessionOptions{Timeout: q.Timeout})
	if err != nil {
		return err
	}
	m.mu.Lock()
	m.sessions[q.Session] = s
	m.mu.Unlock()
	r.Session = s.ID()
	return nil
}

// use carries out requests that need a session.
func (m *member) use(ctx context.Context, s *embed.Session, q *request, r *reply) (err error) {
	switch q.Call {
	case callClose:
		return s.Close()
	case callState:
		state, _ := s.State()
		r.Data = state.String()
		return s.Err()
	case callCreate:
		r.Path, err = s.Create(ctx, q.Path, []byte(q.Data), embed.CreateMode(q.Mode))
	case callSet:
		r.Stat, err = s.Set(ctx, q.Path, []byte(q.Data), q.Version)
	case callGet:
		var data []byte
		data, r.Stat, err = s.Get(ctx, q.Path)
		r.Data = string(data)
	case callDelete:
		err = s.Delete(ctx, q.Path, q.Version)
	case callSync:
		r.Zxid, err = s.Sync(ctx, q.Path)
	case callChildren:
		r.Names, r.Stat, err = s.Children(ctx, q.Path)
	case callTransfer:
		err = transfer(ctx, s, q.Path, q.Data)
	case callBurst:
		r.Each = burst(ctx, s, q.Path, q.Count)
	case callSets:
		r.Each, r.Version = sets(ctx, s, q.Path, q.Data, q.Count)
	case callWalk:
		r.Zxid, r.Tree, err = walk(ctx, s)
	case callLock, callTryLock:
		err = m.lock(ctx, s, q, r)
	case callSection:
		err = locked(ctx, s, q.Path, r)
	case callGuarded:
		r.Stat, err = guarded(ctx, s, m.hold(q), q)
	case callWriteOn:
		m.writeOn(ctx, s, q, r)
	default:
		err = fmt.Errorf("no call %q", q.Call)
	}
	return err
}

// transfer moves one unit from the account below path called a to the account called b, and records
// the transfer under an id. All of this is one transaction, which fails if anybody else comes
// first.
func transfer(ctx context.Context, s *embed.Session, path, id string) error {
	// After a stale read, the version would be refused again and again.
	if _, err := s.Sync(ctx, path); err != nil {
		return fmt.Errorf("%w: %w", embed.ErrUnavailable, err)
	}
	a, stat, err := s.Get(ctx, path+"/a")
	if err != nil {
		return err
	}
	b, other, err := s.Get(ctx, path+"/b")
	if err != nil {
		return err
	}
	from, _ := strconv.Atoi(string(a))
	to, _ := strconv.Atoi(string(b))
	_, err = s.Multi(ctx,
		embed.OpSet(path+"/a", strconv.AppendInt(nil, int64(from-1), 10), stat.Version),
		embed.OpCreate(path+"/log-", []byte(id), embed.Sequential),
		embed.OpSet(path+"/b", strconv.AppendInt(nil, int64(to+1), 10), other.Version))
	return err
}

// burst submits creates of path-0, path-1, … without waiting, and returns their outcomes.
func burst(ctx context.Context, s *embed.Session, path string, count int) (each []outcome) {
	var all []*embed.Pending
	for i := range count {
		all = append(all, s.Submit(ctx, embed.OpCreate(path+"-"+strconv.Itoa(i), nil, embed.Persistent)))
	}
	for _, p := range all {
		_, err := p.Result()
		each = append(each, outcomeOf(err))
	}
	return each
}

// sets submits sets of one znode to data-0, data-1, … without waiting. It returns their outcomes
// and the versions that they made.
func sets(ctx context.Context, s *embed.Session, path, data string, count int) (each []outcome, versions []int32) {
	var all []*embed.Pending
	for i := range count {
		all = append(all, s.Submit(ctx, embed.OpSet(path, []byte(data+"-"+strconv.Itoa(i)), embed.AnyVersion)))
	}
	for _, p := range all {
		results, err := p.Result()
		each = append(each, outcomeOf(err))
		version := int32(-1)
		if err == nil {
			version = results[0].Stat.Version
		}
		versions = append(versions, version)
	}
	return each, versions
}

// walk returns every znode, after a Sync. It is one state only if nobody writes meanwhile.
func walk(ctx context.Context, s *embed.Session) (embed.Zxid, []entry, error) {
	zxid, err := s.Sync(ctx, "/")
	if err != nil {
		return 0, nil, err
	}
	var all []entry
	var visit func(path string) error
	visit = func(path string) error {
		data, stat, err := s.Get(ctx, path)
		if err != nil {
			return err
		}
		all = append(all, entry{Path: path, Data: string(data), Stat: stat})
		names, _, err := s.Children(ctx, path)
		if err != nil {
			return err
		}
		if path == "/" {
			path = ""
		}
		for _, name := range names {
			if err := visit(path + "/" + name); err != nil {
				return err
			}
		}
		return nil
	}
	return zxid, all, visit("/")
}

func (m *member) lock(ctx context.Context, s *embed.Session, q *request, r *reply) error {
	mutex := lock.NewMutex(s, q.Path)
	acquire := mutex.Lock
	if q.Call == callTryLock {
		acquire = mutex.TryLock
	}
	h, err := acquire(ctx)
	if err != nil {
		return err
	}
	r.At = now()
	token := h.Token()
	r.Token = &token
	r.Path = h.Path()
	m.mu.Lock()
	m.holds[q.Hold] = h
	m.mu.Unlock()
	return nil
}

// sectionLen is how long locked asks its hold.
const sectionLen = 3 * time.Millisecond

// locked acquires a lock, and reports when it certainly had it.
func locked(ctx context.Context, s *embed.Session, path string, r *reply) error {
	h, err := lock.NewMutex(s, path).Lock(ctx)
	if err != nil {
		return err
	}
	r.At = now()
	r.Until = r.At
	token := h.Token()
	r.Token = &token
	for at := now(); at-r.At < sectionLen; at = now() {
		if h.Err() != nil {
			break
		}
		r.Until = at
	}
	_ = h.Release() // if it cannot be sent, the node keeps trying
	return nil
}

// hold returns a hold of this process, or nil if there is none of that name.
func (m *member) hold(q *request) *lock.Hold {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.holds[q.Hold]
}

// guarded sets a znode if the hold is the granted one.
func guarded(ctx context.Context, s *embed.Session, h *lock.Hold, q *request) (embed.Stat, error) {
	results, err := s.Multi(ctx, lock.Guard(h), embed.OpSet(q.Path, []byte(q.Data), embed.AnyVersion))
	if err != nil {
		return embed.Stat{}, err
	}
	return results[1].Stat, nil
}

// writesAhead is how many writes writeOn has in flight. It is four times what the batches in flight
// can hold, so that some writes always wait in the queue.
const writesAhead = 8192

// writeOn works as holders do: until its hold's context has ended, it submits guarded sets of a
// znode.
func (m *member) writeOn(ctx context.Context, s *embed.Session, q *request, r *reply) {
	h := m.hold(q)
	m.armed.Add(1)
	defer m.armed.Add(-1)
	var pending []*embed.Pending
	note := func(n int) {
		for _, p := range pending[:n] {
			results, err := p.Result()
			r.Each = append(r.Each, outcomeOf(err))
			version := int32(-1)
			if err == nil {
				version = results[1].Stat.Version
			}
			r.Version = append(r.Version, version)
		}
		pending = pending[n:]
	}
	for at := now(); h.Context().Err() == nil; at = now() {
		r.Until = at
		if len(pending) == writesAhead {
			note(1)
		}
		pending = append(pending, s.Submit(ctx, lock.Guard(h), embed.OpSet(q.Path, []byte(q.Data), embed.AnyVersion)))
		m.ahead.Store(int32(len(pending)))
	}
	note(len(pending))
	r.Lost = text(h.Err())
	r.LostCtx = text(h.Context().Err())
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// paused waits until a signal has stopped this process, and then asks its first question. It runs
// when the signal comes, so it is among the first code that runs when the process is continued.
func (m *member) paused(ctx context.Context, s *embed.Session, h *lock.Hold, q *request, r *reply) error {
	if err := h.Context().Err(); err != nil {
		return err
	}
	before := now() // before it is armed, or a stop in between would not show
	m.armed.Add(1)
	defer m.armed.Add(-1)
	for at := before; at-before < q.Timeout; at = now() {
		before = at
	}
	r.At = now()
	r.Pause = r.At - before
	r.Data = firstQuestion(ctx, s, h, q)
	r.Lost = text(h.Err())
	r.LostCtx = text(h.Context().Err())
	return nil
}

// questions are what a holder can ask.
var questions = []string{"Err", "Done", "Context.Err", "Context.Done", "State", "Set"}

// firstQuestion asks one of the questions. It returns the answer, or nothing if that is "still
// held".
func firstQuestion(ctx context.Context, s *embed.Session, h *lock.Hold, q *request) string {
	ended := func(done <-chan struct{}) string {
		select {
		case <-done:
			return "done"
		default:
			return ""
		}
	}
	switch q.Data {
	case "Err":
		return text(h.Err())
	case "Done":
		return ended(h.Done())
	case "Context.Err":
		return text(h.Context().Err())
	case "Context.Done":
		return ended(h.Context().Done())
	case "State":
		if state, _ := s.State(); state != embed.Connected {
			return state.String()
		}
		return ""
	case "Set":
		_, err := guarded(ctx, s, h, q)
		return text(err)
	}
	return fmt.Sprintf("no question %q", q.Data)
}

// ask asks a hold. The reply has the hold's answer; the error is that of the call itself.
func (m *member) ask(ctx context.Context, s *embed.Session, q *request, r *reply) error {
	h := m.hold(q)
	if h == nil {
		return fmt.Errorf("no hold %q", q.Hold)
	}
	switch q.Call {
	case callRelease:
		return h.Release()
	case callPaused:
		return m.paused(ctx, s, h, q, r)
	case callInsist:
		m.armed.Add(1)
		defer m.armed.Add(-1)
		for {
			at := now()
			err := h.Err()
			if err == nil {
				err = h.Context().Err()
			}
			if err != nil {
				r.Lost = text(err)
				return nil
			}
			r.Until = at
		}
	}
	r.At = now()
	r.Lost = text(h.Err())
	r.LostCtx = text(h.Context().Err())
	return nil
}
