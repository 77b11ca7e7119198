package gateway

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/internal/wire"
	"github.com/vivarium-go/vivarium/watch"
)

// Pipelined requests are answered in their order. Each read sees the writes before it, and none
// after it.
func TestPipelinedRequestsAreInOrder(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		g := start(t, Config{Outstanding: 50})
		c := connect(t, g)
		c.must(create("/n", nil, 0))
		const rounds = 400
		sent := make(chan wire.Request, 4*rounds)
		go func() {
			defer close(sent)
			var b []byte
			xid := int32(1000)
			add := func(o wire.Operation) {
				xid++
				q := wire.Request{Xid: xid, Operation: o}
				b = q.AppendFrame(b)
				sent <- q
			}
			r := rand.New(rand.NewPCG(1, 2))
			for i := range rounds {
				add(with(op(wire.OpSetData, "/n"), func(o *wire.Operation) { o.Data = []byte(fmt.Sprint(i)) }))
				switch r.IntN(4) {
				case 0:
					add(op(wire.OpPing, ""))
				case 1:
					add(create("/n", nil, 0)) // this one fails
				case 2:
					add(op(wire.OpWhoAmI, ""))
				}
				add(op(wire.OpGetData, "/n"))
				if len(b) > 1000 || i == rounds-1 {
					if _, err := c.Write(b); err != nil {
						return
					}
					b = b[:0]
				}
			}
		}()
		writes, zxid := 0, int64(0)
		for q := range sent {
			r := c.receive(q)
			switch q.Op {
			case wire.OpSetData:
				writes++
				if r.Err != wire.OK || r.Stat.Version != int32(writes) {
					t.Fatalf("write %d: code %d, version %d", writes, r.Err, r.Stat.Version)
				}
			case wire.OpGetData:
				if r.Err != wire.OK || string(r.Data) != fmt.Sprint(writes-1) {
					t.Fatalf("after %d writes: code %d, %q", writes, r.Err, r.Data)
				}
			}
			if r.Zxid < zxid {
				t.Fatalf("zxid %d after %d", r.Zxid, zxid)
			}
			zxid = r.Zxid
		}
		if writes != rounds {
			t.Errorf("%d writes", writes)
		}
		if n := g.outstanding.Load(); n != 0 {
			t.Errorf("%d requests outstanding", n)
		}
	})
}

// Half a request does not delay the answers to the requests before it. Its client may be waiting
// for them.
func TestHalfARequestHoldsNothingUp(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		c := connect(t, start(t, Config{}))
		for i, o := range []wire.Operation{op(wire.OpGetData, "/"), create("/a", nil, 0), op(wire.OpPing, ""), op(wire.OpSync, "/")} {
			whole := wire.Request{Xid: int32(2 * i), Operation: o}
			half := wire.Request{Xid: whole.Xid + 1, Operation: op(wire.OpExists, "/")}
			b := half.AppendFrame(raw(whole))
			c.write(b[:len(b)-3])
			if r := c.receive(whole); r.Err != wire.OK {
				t.Errorf("op %d: code %d", o.Op, r.Err)
			}
			c.write(b[len(b)-3:])
			c.receive(half)
		}
	})
}

// A refused write ends the connection, and nothing that was sent behind it is applied.
func TestNothingBehindARefusedWrite(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		g := start(t, Config{})
		c := connect(t, g)
		c.must(create("/before", nil, 0))
		other := connect(t, g)
		ended := g.connections()[0].session
		b := raw(wire.Request{Xid: 10, Operation: create("/refused", nil, 0)})
		for i := range 100 {
			q := wire.Request{Xid: int32(11 + i), Operation: create(fmt.Sprintf("/behind-%d", i), nil, 0)}
			b = q.AppendFrame(b)
		}
		if err := ended.Close(); err != nil {
			t.Fatal(err)
		}
		_, _ = c.Write(b) // the connection may have ended by now
		c.ends()
		if r := other.must(op(wire.OpGetChildren, "/")); len(r.Names) != 2 {
			t.Errorf("children: %q", r.Names)
		}
	})
}

// Many connections at once have many requests in flight each.
func TestManyConnections(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		g := start(t, Config{ConnectionsPerAddress: -1, Outstanding: 64})
		connect(t, g).must(create("/many", nil, 0))
		const connections, each = 20, 100
		done := make(chan int, connections)
		for i := range connections {
			c := connect(t, g)
			go func() {
				good := 0
				defer func() { done <- good }()
				var qs []wire.Request
				var b []byte
				for j := range each {
					q := wire.Request{Xid: int32(j), Operation: create(fmt.Sprintf("/many/%d-%d", i, j), []byte("x"), 0)}
					b = q.AppendFrame(b)
					qs = append(qs, q)
				}
				if _, err := c.Write(b); err != nil {
					return
				}
				for _, q := range qs {
					frame, err := wire.ReadFrame(c, nil, 1<<20)
					if err != nil {
						return
					}
					var r wire.Reply
					if _, err := r.DecodeHeader(frame); err == nil && r.Xid == q.Xid && r.Err == wire.OK {
						good++
					}
				}
			}()
		}
		for range connections {
			if good := <-done; good != each {
				t.Errorf("%d of %d writes answered", good, each)
			}
		}
		if r := connect(t, g).must(op(wire.OpGetAllChildrenNumber, "/many")); r.Count != connections*each {
			t.Errorf("%d znodes", r.Count)
		}
	})
}

// A client that does not read is dropped in time. Until then it costs no more than its limit, and
// other clients notice nothing.
func TestSlowReader(t *testing.T) {
	g := start(t, Config{WriteTimeout: 300 * time.Millisecond})
	other := connect(t, g)
	other.must(create("/big", make([]byte, 500_000), 0))
	slow := connect(t, g)
	var b []byte
	for i := range 500 {
		q := wire.Request{Xid: int32(i), Operation: op(wire.OpGetData, "/big")}
		b = q.AppendFrame(b)
	}
	slow.write(b)
	gone := func() bool { return len(g.connections()) == 1 }
	most := 0
	for deadline := time.Now().Add(patience); !gone(); {
		if time.Now().After(deadline) {
			t.Fatal("the slow reader stays")
		}
		other.must(op(wire.OpPing, ""))
		for _, c := range g.connections() {
			c.mu.Lock()
			most = max(most, c.bytes)
			c.mu.Unlock()
		}
	}
	if most > queueBytesMax+600_000 {
		t.Errorf("%d bytes were kept for it", most)
	}
	other.must(op(wire.OpExists, "/big"))
}

// portions records the number of bytes written in all, and the largest write.
type portions struct {
	net.Conn
	most, all int
}

func (p *portions) Write(b []byte) (int, error) {
	p.most, p.all = max(p.most, len(b)), p.all+len(b)
	return len(b), nil
}

// Events are sent in portions, like answers. So a client has WriteTimeout for each portion, and the
// memory for them is bounded.
func TestManyEventsAreSentInPortions(t *testing.T) {
	g := start(t, Config{})
	side, other := net.Pipe()
	defer other.Close()
	sock := &portions{Conn: side}
	c := newConn(g, sock)
	s, err := g.open(g.ctx, lasting(), nil)
	if err != nil {
		t.Fatal(err)
	}
	c.nudgeFunc = func() {}
	c.session, c.watches = s, c.newWatches()
	defer c.watches.End(nil)
	const events = 10_000
	var was watch.Reset
	for i := range events {
		was.Data = append(was.Data, fmt.Sprint("/not-there-", i))
	}
	if _, err := c.watches.Reset(was); err != nil {
		t.Fatal(err)
	}
	if err := c.sendHere(); err != nil {
		t.Fatal(err)
	}
	if sock.all < 40*events || sock.most > portionBytes+1000 {
		t.Errorf("%d bytes, %d of them in one go", sock.all, sock.most)
	}
}

// first records what its connection holds when the first portion is sent.
type first struct {
	net.Conn
	of   *conn
	held int64
}

func (f *first) Write(b []byte) (int, error) {
	if f.held == 0 {
		f.held = f.of.held.Load()
	}
	return len(b), nil
}

// Events count with the length of their paths, even if the znodes are gone. They count until they
// are sent, because a slow client has a long time for each portion.
func TestEventsCountUntilTheyAreSent(t *testing.T) {
	g := start(t, Config{})
	other := connect(t, g)
	side, end := net.Pipe()
	defer end.Close()
	sock := &first{Conn: side}
	sock.of = newConn(g, sock)
	c := sock.of
	s, err := g.open(g.ctx, lasting(), nil)
	if err != nil {
		t.Fatal(err)
	}
	c.nudgeFunc = func() {}
	c.session, c.watches = s, c.newWatches()
	defer c.watches.End(nil)
	if _, err := c.watches.Arm("/", watch.Recursive, nil); err != nil {
		t.Fatal(err)
	}
	watches := c.held.Load()
	const znodes, long = 10, 60_000
	for i := range znodes {
		path := "/" + strings.Repeat("x", long) + fmt.Sprint(i)
		other.must(create(path, nil, 0))
		other.must(op(wire.OpDelete, path))
	}
	if held := c.held.Load(); held < 2*znodes*long {
		t.Errorf("%d bytes are held while they wait", held)
	}
	if err := c.sendHere(); err != nil {
		t.Fatal(err)
	}
	if sock.held < (2*znodes-1)*long {
		t.Errorf("%d bytes are held while the first are sent", sock.held)
	}
	if held := c.held.Load(); held != watches {
		t.Errorf("%d bytes are held afterwards, want %d", held, watches)
	}
}

// A queue that is never empty does not grow. A client may always be ahead of its answers.
func TestQueueKeepsItsSize(t *testing.T) {
	side, other := net.Pipe()
	defer side.Close()
	defer other.Close()
	c := newConn(&Gateway{cfg: Config{Memory: DefaultMemory}}, side)
	for i := range 10_000 {
		c.push(&answer{state: answerPlaced, reply: wire.Reply{Xid: int32(i)}})
		if i < 10 {
			continue
		}
		a, ok := c.first()
		if !ok || a.reply.Xid != int32(i-10) {
			t.Fatalf("%d is first, want %d", a.reply.Xid, i-10)
		}
		c.pop(&a)
	}
	if cap(c.queue) > 64 {
		t.Errorf("the queue has room for %d answers and holds 10", cap(c.queue))
	}
}

// 6.4: events and answers are in one order, even for pipelined writes. The events of a write come
// after the answer to the write before it, and before its own answer. The answer has the write's
// zxid.
func TestEventsLieBetweenPipelinedWrites(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		oneShard(t)
		g := start(t, Config{})
		c := connect(t, g)
		const writes = 30
		for i := range writes {
			c.must(create(fmt.Sprint("/", i), nil, 0))
			c.must(with(op(wire.OpGetData, fmt.Sprint("/", i)), func(o *wire.Operation) { o.Watch = true }))
		}
		var frames []byte
		var sent []wire.Request
		for i := range writes {
			// The second one fails.
			for _, o := range []wire.Operation{op(wire.OpSetData, fmt.Sprint("/", i)), create("/0", nil, 0), op(wire.OpPing, "")} {
				c.xid++
				q := wire.Request{Xid: c.xid, Operation: o}
				frames, sent = q.AppendFrame(frames), append(sent, q)
			}
		}
		c.write(frames)
		newest := int64(0)
		for n, q := range sent {
			r := c.receive(q)
			switch i := n / 3; {
			case n%3 != 0:
				if len(c.events) > 0 || r.Zxid != newest {
					t.Fatalf("behind write %d, in an answer of zxid %d after %d: %v", i, r.Zxid, newest, c.events)
				}
			case len(c.events) != 1 || c.events[0].Path != fmt.Sprint("/", i) || r.Zxid != r.Stat.Mzxid:
				t.Fatalf("write %d of zxid %d: an answer of zxid %d, after %v", i, r.Stat.Mzxid, r.Zxid, c.events)
			default:
				newest = r.Zxid
			}
			c.events = nil
		}
	})
}

// watched returns a client that watches the data of /a, its connection, and another client.
func watched(t *testing.T) (c *client, served *conn, other *client) {
	t.Helper()
	g := start(t, Config{})
	c = connect(t, g)
	c.must(create("/a", nil, 0))
	c.must(watching(op(wire.OpGetData, "/a")))
	return c, g.connections()[0], connect(t, g)
}

// If an event overtakes a read, the gateway reads again. The answer must not show less than the
// client was told. However often that happens, nobody waits for the reader: neither writes, nor the
// words, which ask the connection. An event during the second read comes behind the answer, which
// does not show its change.
func TestReadThatEventsOvertake(t *testing.T) {
	for _, q := range []wire.Request{
		{Operation: op(wire.OpGetData, "/a")},
		{Operation: wire.Operation{Op: wire.OpMultiRead}, Ops: []wire.Operation{op(wire.OpGetData, "/a")}},
	} {
		c, served, other := watched(t)
		watch := op(wire.OpAddWatch, "/a")
		watch.Mode = wire.WatchPersistent
		c.must(watch)
		a := answer{arrived: time.Now()}
		a.reply.Xid, a.reply.Op = 77, q.Op
		count := 0
		err := served.answerRead(&a, func(from source) error {
			count++
			// It is committed during this read, whatever lock the reader holds.
			other.must(op(wire.OpSetData, "/a"))
			served.queued() // the words call this
			if q.Op == wire.OpMultiRead {
				return served.readAll(from, &q, &a)
			}
			return served.getData(from, &q.Operation, &a.reply.Result)
		})
		if err != nil || count != 2 {
			t.Errorf("%d reads, %v", count, err)
		}
		served.nudge()
		q.Xid = 77
		r := c.receive(q)
		if q.Op == wire.OpMultiRead {
			r.Stat = r.Results[0].Stat
		}
		if r.Stat.Version != 1 || len(c.events) != 1 {
			t.Errorf("version %d behind %d events", r.Stat.Version, len(c.events))
		}
		c.must(op(wire.OpPing, ""))
		if len(c.events) != 2 {
			t.Errorf("%d events afterwards", len(c.events))
		}
	}
}

// While a write is in flight and its answer is not queued yet, no event is sent. It may be an event
// of a later transaction.
func TestNoEventOvertakesAWriteInFlight(t *testing.T) {
	_, served, other := watched(t)
	wait(t, "the baton", served.baton.pickUp)
	is := func(making bool) {
		served.mu.Lock()
		defer served.mu.Unlock()
		served.deferEvents = making
	}
	is(true)
	other.must(op(wire.OpSetData, "/a"))
	w := writer{conn: served}
	if events, more, err := w.idle(); len(events) > 0 || more || err != nil {
		t.Errorf("sent while the answer is made: %v, more %v, error %v", events, more, err)
	}
	is(false)
	if events, _, err := w.idle(); len(events) != 1 || err != nil {
		t.Errorf("sent afterwards: %v, error %v", events, err)
	}
	served.sendLoop()
}
