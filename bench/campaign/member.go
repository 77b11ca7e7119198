package campaign

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"sync"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/gateway"
	"github.com/vivarium-go/vivarium/embed/lock"
)

const (
	// With this tick, elections take 0.2 to 0.48 s, and the least session timeout is 1.44 s.
	tick = 20 * time.Millisecond
	// requestTimeout is longer than the end of an abandoned session takes, so calls of the session
	// may still be in flight then.
	requestTimeout = 3 * time.Second
	// sessionTimeoutMin is the timeout of a session that asks for less.
	sessionTimeoutMin = 72 * tick
)

// notStarted is the answer of a process whose node is not started yet.
const notStarted = "not started"

// A Member serves the requests of a campaign to one process of a member.
type Member struct {
	Machine
	// the request that wants to know of expired sessions; set before the first start
	expired Request
	// set by the first start
	door   string // of the gateway
	shards int
	remote opener          // a client of the gateways of all members
	wires  wires           // those of its connections
	rest   context.Context // ends when holders shall not hold longer than they must
	tire   context.CancelFunc

	mu struct {
		sync.Mutex
		cfg      embed.Config
		run      int // number of the newest run
		node     *embed.Node
		gateway  *gateway.Gateway // of node
		failed   error            // why there is no node
		sessions map[string]owned
		kept     map[keptKey]*lock.Mutex
	}
}

// An owned is a session of the process. A remote one goes over a connection to the gateway of some
// member, so it does not end with the process's own node.
type owned struct {
	*embed.Session
	remote bool
}

// NewMember returns a member whose node is not started yet.
func NewMember(on Machine) *Member {
	m := &Member{Machine: on}
	m.rest, m.tire = context.WithCancel(context.Background())
	m.mu.sessions = make(map[string]owned)
	m.mu.kept = make(map[keptKey]*lock.Mutex)
	return m
}

// Serve begins to serve a request. It must not be called again before it returns. It calls say with
// notices and then with the answer, from any goroutine.
func (m *Member) Serve(q Request, say func(r Reply, notice bool)) {
	q.say = say
	switch q.Call {
	case callExpired:
		m.expired = q
	// in their order, even if many have waited
	case callLink, callDisk, callWall, callSleep, callFreeze:
		m.answer(&q)
	default:
		go m.answer(&q)
	}
}

func (m *Member) answer(q *Request) {
	ctx := context.Background()
	if q.Within > 0 {
		var cancel context.CancelFunc
		ctx, cancel = limit(ctx, q.Within)
		defer cancel()
	}
	var r Reply
	err := m.serve(ctx, q, &r)
	r.Outcome = outcomeOf(err)
	if err != nil {
		r.Error = err.Error()
	}
	if s := m.session(q.Session); s.Session != nil && s.Err() != nil {
		r.End = s.Err().Error()
	}
	q.say(r, false)
}

func (m *Member) node() *embed.Node {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.node
}

// number returns the number of a node's run, or zero if the node is not the newest one.
func (m *Member) number(n *embed.Node) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.node != n {
		return 0
	}
	return m.mu.run
}

func (m *Member) session(name string) owned {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.sessions[name]
}

func (m *Member) serve(ctx context.Context, q *Request, r *Reply) error {
	switch q.Call {
	case callStart:
		return m.startFirst(q.Start)
	case callRecover:
		return m.Recover(ctx, q.Start.Home, q.Lost)
	case callLink:
		m.setLink(q.To, q.Link)
		return nil
	case callDisk:
		setDisk(m.Faults, q.Disk)
		return nil
	case callWall:
		m.Faults.SetWallClock(stretch(q.Length))
		return nil
	case callFreeze:
		// a member of an older release has no such fault
		if f, ok := any(m.Faults).(interface{ Freeze(frozen bool) }); ok {
			f.Freeze(q.Count > 0)
		}
		return nil
	case callSleep:
		m.Faults.Sleep(stretch(q.Length))
		return nil
	case callMend:
		return m.mend(q, r)
	case callRest:
		m.tire()
		return nil
	case callStacks:
		stacks := make([]byte, 8<<20)
		fmt.Fprintf(m.Log, "%s\n", stacks[:runtime.Stack(stacks, true)])
		return nil
	}
	s := m.session(q.Session)
	if s.remote {
		return m.use(ctx, m.remote, s.Session, q, r)
	}
	n := m.node()
	if n == nil {
		return errors.New(notStarted)
	}
	switch q.Call {
	case callReady:
		return n.Ready(ctx)
	case callStatus:
		r.Status = n.Status()
		r.Failed, r.Joining = text(n.Err()), joining(n)
		return nil
	case callTransfer:
		return n.TransferLeadership(q.Shard, q.To)
	case callShutdown:
		return n.Shutdown(ctx)
	case callOpen:
		return m.open(ctx, n, q, r)
	case callMembers, callRemove, callLeave:
		return changeMembers(ctx, n, q, r)
	}
	if s.Session == nil {
		return fmt.Errorf("no session %q", q.Session)
	}
	return m.use(ctx, n, s.Session, q, r)
}

func (m *Member) startFirst(s *start) error {
	for to, l := range s.Links {
		m.setLink(to, l)
	}
	var err error
	m.door, m.shards = s.Door, s.Shards
	if m.remote, err = newRemote(s.Doors, &m.wires); err != nil {
		return err
	}
	cfg := embed.Config{
		Dir: s.Dir, ID: s.ID, Members: s.Members, Shards: s.Shards, Ensemble: "chaos",
		Tick: stretch(tick), RequestTimeout: stretch(requestTimeout), ContainerCheckInterval: stretch(reapEvery), MaxSessionTimeout: stretch(embed.DefaultMaxSessionTimeout),
		Events: embed.Events{SessionExpired: func(id embed.SessionID) { m.expired.say(Reply{Session: id, At: m.Now()}, true) }},
	}
	cfg.HoldLevel = int(s.HoldLevel)
	if s.Next { // Inside is of a type that only the library's own packages can name
		if err := json.Unmarshal([]byte(`{"Inside": {"Next": true}}`), &cfg); err != nil {
			return err
		}
	}
	if len(s.Join) > 0 {
		letGrow(&cfg, s, m.Faults)
	}
	return m.run(s.Run, cfg)
}

func (m *Member) run(number int, cfg embed.Config) error {
	n, err := m.Start(cfg)
	var g *gateway.Gateway
	if err == nil && m.door != "" {
		g, err = gateway.Start(n, door(m.door))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.cfg, m.mu.run, m.mu.node, m.mu.gateway, m.mu.failed = cfg, number, n, g, err
	return err
}

// mend mends the disk. If the node fails in the time of q.Length, or could not start, mend starts a
// new one in this process.
func (m *Member) mend(q *Request, r *Reply) error {
	setDisk(m.Faults, diskFault{})
	time.Sleep(stretch(q.Length))
	m.mu.Lock()
	n, g, cfg, failed := m.mu.node, m.mu.gateway, m.mu.cfg, m.mu.failed
	m.mu.Unlock()
	if n != nil {
		failed = n.Err()
	}
	r.Failed = text(failed)
	switch {
	case n == nil && failed == nil:
		return errors.New(notStarted)
	case failed == nil:
		return nil
	case n != nil:
		if g != nil {
			_ = g.Close()
		}
		if err := m.Close(n); err != nil {
			fmt.Fprintln(m.Log, "closing the failed node:", err)
		}
	}
	return m.run(q.Run, cfg)
}

// End closes what a process takes with it when it dies, besides the node. It is for a process that
// only plays to die.
func (m *Member) End() {
	m.mu.Lock()
	g := m.mu.gateway
	m.mu.Unlock()
	if g != nil {
		_ = g.Close()
	}
}

func (m *Member) open(ctx context.Context, n *embed.Node, q *Request, r *Reply) error {
	if run := m.number(n); run != q.Run {
		// the caller does not know of the next run yet
		return fmt.Errorf("no session in run %d any more", q.Run)
	}
	from := opener(n)
	if q.Remote {
		from = m.remote
	}
	s, err := from.NewSession(ctx, embed.SessionOptions{Timeout: stretch(q.Timeout)})
	if err != nil {
		return err
	}
	m.mu.Lock()
	m.mu.sessions[q.Session] = owned{s, q.Remote}
	m.mu.Unlock()
	r.Session = s.ID()
	return nil
}

func (m *Member) closeSession(s *embed.Session, name string) error {
	m.mu.Lock()
	delete(m.mu.sessions, name)
	maps.DeleteFunc(m.mu.kept, func(k keptKey, _ *lock.Mutex) bool { return k.session == s })
	m.mu.Unlock()
	if err := s.Close(); err != nil || errors.Is(s.Err(), embed.ErrSessionClosed) {
		return err
	}
	return s.Err() // it had ended before
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
