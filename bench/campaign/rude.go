package campaign

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/gateway"
	"github.com/vivarium-go/vivarium/internal/wire"
)

// Rude clients are remote clients of the members' gateways. They only read. A counter counts the
// whole tree all the time. A hoarder asks for more than it reads. A member may end their
// connections, and must go on serving its own service.

const (
	rudeTimeout = 5 * time.Second
	// tablesMax is how long sessions may stay in tables at the end. A gateway's session may take
	// eight timeouts.
	tablesMax = patience + 8*rudeTimeout
	// stayMax is how long a rude client stays on one member.
	stayMax = 10 * time.Second
	// spate is how many requests a rude client sends at once.
	spate = 100
)

// door returns the configuration of a member's gateway. Its memory for all clients together is so
// small that a hoarder reaches the limit by itself. All clients of the machine have one address.
func door(listen string) gateway.Config {
	return gateway.Config{Listen: listen, Memory: 4 << 20, ConnectionsPerAddress: -1, Words: []string{wordMonitor}}
}

// rudeClients are the kinds of rude clients.
var rudeClients = []struct {
	name string
	stay func(*rudeClient) error
}{{"counter", (*rudeClient).count}, {"hoarder", (*rudeClient).hoard}}

// receive starts a rude client of each kind. They end with ctx.
func (w *workload) receive(ctx context.Context) {
	if !chosen("rude", w.only) {
		return
	}
	for i := range rudeClients {
		w.clients.Go(func() { w.roam(ctx, i, 10*tick) })
	}
}

// roam is the life of a rude client, which visits one member after the other.
func (w *workload) roam(ctx context.Context, number int, rest time.Duration) {
	kind := rudeClients[number%len(rudeClients)]
	rng := rand.New(rand.NewPCG(w.seed, uint64(number)))
	for ctx.Err() == nil {
		how := w.visit(ctx, w.e.ids[rng.IntN(len(w.e.ids))], kind.stay)
		w.report.count(sectionSeen, fmt.Sprintf("visit of a %s: %s", kind.name, how), 1)
		pause(ctx, w.pace(between(rng, tick, rest)))
	}
}

// visit is one connection of a rude client. It returns how the connection ended.
func (w *workload) visit(ctx context.Context, id embed.MemberID, stay func(*rudeClient) error) string {
	ctx, cancel := limit(ctx, stayMax)
	defer cancel()
	dialling, stop := limit(ctx, rudeTimeout)
	defer stop()
	c, err := w.e.host.Dial(dialling, id)
	if err != nil {
		return "nobody was in"
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	v := &rudeClient{conn: c, area: w.areas[0], report: w.report}
	if w.virtual {
		v.lull = func() { pause(ctx, w.pace(tick)) }
	}
	if err := v.enter(); err != nil {
		return "it was not let in"
	}
	_ = stay(v)
	if ctx.Err() != nil {
		return "it left"
	}
	return "its connection was ended"
}

// A rudeClient is one connection.
type rudeClient struct {
	conn   net.Conn
	area   string // an area that others write to
	xid    int32
	buf    []byte
	report *report
	lull   func() // between two spates; nil in real time, which passes anyway
}

// enter opens a session.
func (v *rudeClient) enter() error {
	if err := v.conn.SetDeadline(time.Now().Add(stretch(2 * rudeTimeout))); err != nil {
		return err
	}
	hello := wire.ConnectRequest{Timeout: int32(stretch(rudeTimeout).Milliseconds()), Password: make([]byte, 16)}
	if _, err := v.conn.Write(hello.AppendFrame(nil)); err != nil {
		return err
	}
	if _, err := wire.ReadFrame(v.conn, nil, 1<<10); err != nil {
		return err
	}
	return v.conn.SetDeadline(time.Time{})
}

// send sends n requests at once.
func (v *rudeClient) send(n int, operation func(i int) wire.Operation) error {
	v.buf = v.buf[:0]
	for i := range n {
		v.xid++
		v.buf = (&wire.Request{Xid: v.xid, Operation: operation(i)}).AppendFrame(v.buf)
	}
	_, err := v.conn.Write(v.buf)
	return err
}

// count watches an area, and counts the tree until the connection ends.
func (v *rudeClient) count() error {
	err := v.send(1, func(int) wire.Operation {
		return wire.Operation{Op: wire.OpAddWatch, Path: v.area, Mode: wire.WatchRecursive}
	})
	for err == nil {
		err = v.send(spate, func(int) wire.Operation {
			return wire.Operation{Op: wire.OpGetAllChildrenNumber, Path: rootPath}
		})
		for answers := 0; err == nil && answers < spate; answers++ {
			_, err = wire.ReadFrame(v.conn, nil, wire.FrameMax)
		}
		v.report.count(sectionSeen, "counts of the tree by rude clients", spate)
		if v.lull != nil {
			v.lull()
		}
	}
	return err
}

// hoard arms watches of long paths and asks for lists, and reads no answer.
func (v *rudeClient) hoard() (err error) {
	for n := 0; err == nil; n++ {
		err = v.send(spate, func(i int) wire.Operation {
			if i%2 == 0 {
				return wire.Operation{Op: wire.OpGetChildren2, Path: v.area + markersPath}
			}
			path := fmt.Sprintf("/%d-%d-%s", n, i, strings.Repeat("x", 1000))
			return wire.Operation{Op: wire.OpExists, Path: path, Watch: true}
		})
		v.report.count(sectionSeen, "requests of rude clients that do not read", spate)
	}
	return err
}

// rush brings more rude clients while a session of the least timeout is open on each member. It
// counts how many of these sessions are lost. A loss is no violation: on a machine that stands
// still sessions are lost too.
func rush(s *strike) string {
	var watched []*client
	for _, id := range s.e.here() {
		if c := s.visitor(id, "leaver"); c != nil {
			watched = append(watched, c)
		}
	}
	more := 3 * len(s.e.ids)
	var all sync.WaitGroup
	for i := range more {
		all.Go(func() { s.w.roam(s.ctx, i, tick) })
	}
	all.Wait()
	for _, c := range watched {
		// In the background: another fault may have stopped the member, and is healed after this.
		s.w.clients.Go(func() {
			c.call(Request{Call: callGet, Path: rootPath}, nil)
			if s.alone {
				s.report.count(sectionSeen, "sessions open while only rude clients came", 1)
			}
			if s.alone && !c.alive {
				s.report.count(sectionSeen, "sessions lost while only rude clients came: "+c.why, 1)
			}
			c.close()
		})
	}
	return fmt.Sprintf("%d more", more)
}
