//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/vivarium-go/vivarium/internal/wire"
)

// An attack is what each of many clients does on a connection of its own, at some member: it sends what
// it likes, and waits until ctx ends or the member has enough of it. Then it comes again. It holds much
// rather than hurries: it shares the processors with the members.
type attack struct {
	name    string
	clients int
	port    func(m *member) string
	run     func(ctx context.Context, c net.Conn)
}

func door(m *member) string  { return m.door }
func admin(m *member) string { return m.admin }
func peer(m *member) string  { return m.peer }

var attacks = []attack{
	{"idle", 6000, door, func(ctx context.Context, c net.Conn) { hear(c) }},
	{"half a request", 6000, door, func(ctx context.Context, c net.Conn) { say(c, []byte{0, 0, 0, 45, 0, 0}) }},
	{"long requests without an end", 300, door, func(ctx context.Context, c net.Conn) {
		if enter(c) {
			say(c, append([]byte{0, 15, 0, 0}, make([]byte, 900_000)...))
		}
	}},
	{"answers that nobody reads", 300, door, func(ctx context.Context, c net.Conn) {
		if enter(c) {
			q := wire.Request{Operation: wire.Operation{Op: wire.OpMultiRead}}
			for range 16 {
				q.Ops = append(q.Ops, wire.Operation{Op: wire.OpGetData, Path: bulk(0)})
			}
			_, _ = c.Write(bytes.Repeat(q.AppendFrame(nil), 100))
			<-ctx.Done()
		}
	}},
	{"small reads at once", 1000, door, func(ctx context.Context, c net.Conn) {
		if enter(c) {
			q := wire.Request{Operation: wire.Operation{Op: wire.OpGetData, Path: "/small"}}
			go hear(c)
			for ctx.Err() == nil {
				if _, err := c.Write(bytes.Repeat(q.AppendFrame(nil), 10)); err != nil {
					return
				}
				time.Sleep(time.Second)
			}
		}
	}},
	{"walks that wait, beside writes", 60, door, func(ctx context.Context, c net.Conn) {
		if !enter(c) {
			return
		}
		walk := wire.Request{Operation: wire.Operation{Op: wire.OpNative}, Native: wire.Native{Kind: wire.NativeWalk, Path: "/bulk"}}
		if _, err := c.Write(walk.AppendFrame(nil)); err != nil {
			return
		}
		if rand.IntN(10) > 0 {
			hear(c)
			return
		}
		go hear(c)
		for ctx.Err() == nil { // one of ten writes
			set := wire.Request{Operation: wire.Operation{Op: wire.OpSetData, Path: bulk(rand.IntN(bulks)), Data: make([]byte, bulkBytes), Version: -1}}
			if _, err := c.Write(set.AppendFrame(nil)); err != nil {
				return
			}
			time.Sleep(time.Second)
		}
	}},
	{"watches", 300, door, func(ctx context.Context, c net.Conn) {
		if !enter(c) {
			return
		}
		go hear(c)
		for i := 0; ctx.Err() == nil; i++ {
			q := wire.Request{Operation: wire.Operation{Op: wire.OpAddWatch, Path: fmt.Sprintf("/%d/%0200d", rand.Int64(), i)}}
			if _, err := c.Write(q.AppendFrame(nil)); err != nil {
				return
			}
			if i%100 == 0 {
				time.Sleep(time.Second)
			}
		}
	}},
	{"bodies without an end", 300, admin, func(ctx context.Context, c net.Conn) {
		if _, err := fmt.Fprintf(c, "PUT /v1/znode?path=/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000\r\n\r\n"); err == nil {
			say(c, make([]byte, 1<<20))
		}
	}},
	{"half a header", 300, admin, func(ctx context.Context, c net.Conn) {
		say(c, append([]byte("GET /v1/status HTTP/1.1\r\nHost: "), bytes.Repeat([]byte("a"), 200<<10)...))
	}},
	{"idle at the members' port", 600, peer, func(ctx context.Context, c net.Conn) { hear(c) }},
	{"garbage at the members' port", 300, peer, func(ctx context.Context, c net.Conn) {
		junk := make([]byte, 64<<10)
		for i := range junk {
			junk[i] = byte(rand.Int())
		}
		say(c, junk)
	}},
}

// The znodes that attacks read and write.
const (
	bulks     = 16
	bulkBytes = 900_000
)

func bulk(i int) string { return fmt.Sprintf("/bulk/%d", i) }

// hear reads until the other end closes the connection.
func hear(c net.Conn) {
	b := make([]byte, 4<<10)
	for {
		if _, err := c.Read(b); err != nil {
			return
		}
	}
}

// say writes, and waits.
func say(c net.Conn, b []byte) {
	if _, err := c.Write(b); err == nil {
		hear(c)
	}
}

// enter opens a session.
func enter(c net.Conn) bool {
	q := wire.ConnectRequest{Timeout: 60_000, Password: make([]byte, 16)}
	if _, err := c.Write(q.AppendFrame(nil)); err != nil {
		return false
	}
	b, err := wire.ReadFrame(c, nil, 1000)
	var a wire.ConnectResponse
	return err == nil && a.Decode(b) == nil && a.SessionID != 0
}

// pauseBetween is between two connections of one client.
const pauseBetween = 2 * time.Second

// play lets an attack go on until ctx ends. Every 50 clients have an address of their own.
func (a *attack) play(ctx context.Context, members []*member) {
	var all sync.WaitGroup
	for i := range a.clients {
		all.Go(func() {
			var ip [4]byte
			binary.BigEndian.PutUint32(ip[:], 127<<24|2<<16|uint32(i/50+2))
			d := net.Dialer{Timeout: 5 * time.Second, LocalAddr: &net.TCPAddr{IP: ip[:]}}
			for pause := rand.N(pauseBetween); wait(ctx, pause); pause = pauseBetween {
				c, err := d.DialContext(ctx, "tcp", a.port(members[i%len(members)]))
				if err != nil {
					continue
				}
				stop := context.AfterFunc(ctx, func() { _ = c.Close() })
				a.run(ctx, c)
				stop()
				_ = c.Close()
			}
		})
	}
	all.Wait()
}

// wait waits, and returns false if ctx has ended.
func wait(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
