//go:build linux

package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/vivarium-go/vivarium/internal/wire"
)

// A greed is one way to take much. Many do so at a time, each from an address of its own.
type greed struct {
	name string
	many int
	door func(*member) string
	// session says that it opens one first.
	session bool
	take    func(s *session) error
	first   bool // they all go to the first member
}

const (
	held    = 20 * time.Second // how long one keeps what it has, and then comes again
	walked  = "/walked"        // has walkedMany znodes of walkedSize bytes, which are replaced all the time
	large   = "/large"         // has 1 MB
	listed  = "/listed"        // has listedMany children
	watched = "/watched-by-many-with-a-name-that-takes-some-memory-on-the-other-side/"
)

const (
	walkedMany = 1000
	walkedSize = 16 << 10
	listedMany = 20_000
	watches    = 10_000
	pile       = 200
)

func gatewayOf(m *member) string { return m.gateway }
func adminOf(m *member) string   { return m.admin }
func peersOf(m *member) string   { return m.peers }

func greeds() []greed {
	return []greed{
		{name: "say nothing", many: files + 400, door: gatewayOf, first: true, take: part("")},
		{name: "a part of the first request", many: 300, door: gatewayOf, take: part("\x00\x00\x00\x2d\x00")},
		{name: "a part of a large request", many: 150, door: gatewayOf, session: true, take: part("\x00\x0f\x00\x00" + strings.Repeat("x", 900_000))},
		{name: "read no answers of 1 MB", many: 60, door: gatewayOf, session: true, take: piles(do(wire.OpGetData, large))},
		{name: "read no names", many: 60, door: gatewayOf, session: true, take: piles(do(wire.OpGetChildren, listed))},
		{name: "read no small answers", many: 150, door: gatewayOf, session: true, take: piles(do(wire.OpGetData, walked+"/0"))},
		{name: "begin a walk", many: 60, door: gatewayOf, session: true, take: walk},
		{name: "replace what is walked", many: 3, door: gatewayOf, session: true, take: replace},
		{name: "watch thousands", many: 60, door: gatewayOf, session: true, take: watchMany},
		{name: "a part of a request", many: 150, door: adminOf, take: part("GET /v1/status HTTP/1.1\r\nHost:")},
		{name: "a part of a body", many: 150, door: adminOf, take: part("PUT /v1/znode?path=/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 900000\r\n\r\n" + strings.Repeat("x", 100_000))},
		{name: "garbage", many: 150, door: peersOf, take: garbage},
		{name: "say nothing", many: 150, door: peersOf, take: part("")},
	}
}

// part sends something that is no whole request.
func part(text string) func(*session) error {
	return func(s *session) error { return s.write([]byte(text)) }
}

func garbage(s *session) error {
	b := make([]byte, 64<<10)
	_, _ = rand.Read(b)
	return s.write(b)
}

// piles asks for much at once, and reads none of it.
func piles(q wire.Request) func(*session) error {
	return func(s *session) error {
		for range pile {
			if err := s.send(q); err != nil {
				return err
			}
		}
		return nil
	}
}

func walk(s *session) error {
	native := func(n wire.Native) wire.Request {
		return wire.Request{Operation: wire.Operation{Op: wire.OpNative}, Native: n}
	}
	if err := s.call(native(wire.Native{Kind: wire.NativeHello})); err != nil {
		return err
	}
	return s.call(native(wire.Native{Kind: wire.NativeWalk, Path: walked}))
}

func replace(s *session) error {
	data := make([]byte, walkedSize)
	for begin := time.Now(); time.Since(begin) < held; {
		if err := s.call(set(fmt.Sprint(walked, "/", mathrand.N(walkedMany)), data)); err != nil {
			return err
		}
	}
	return nil
}

func watchMany(s *session) error {
	for i := range watches {
		q := do(wire.OpExists, fmt.Sprint(watched, i))
		q.Watch = true
		if err := s.send(q); err != nil {
			return err
		}
		if i%100 == 99 {
			for range 100 {
				if _, err := s.read(); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// run has all of the greed's clients take what they can until the ctx ends.
func (g *greed) run(ctx context.Context, kind int, all []*member) {
	var wg sync.WaitGroup
	for i := range g.many {
		m := all[0]
		if !g.first {
			m = all[i%len(all)]
		}
		from := fmt.Sprintf("127.%d.%d.%d", 10+kind, i/250, 1+i%250)
		wg.Go(func() {
			for ctx.Err() == nil {
				g.once(ctx, g.door(m), from)
				sleep(ctx, 200*time.Millisecond+mathrand.N(time.Second))
			}
		})
	}
	wg.Wait()
}

// once takes, and holds it until the other side ends that, or for a while.
func (g *greed) once(ctx context.Context, to, from string) {
	conn, err := dial(to, from)
	if err != nil {
		return
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	s := &session{conn: conn}
	if g.session && s.open() != nil || g.take(s) != nil {
		return
	}
	ended(ctx, conn)
}

// ended waits until a connection has ended, without reading what there is on it, or for a while.
func ended(ctx context.Context, conn net.Conn) {
	_ = conn.SetReadDeadline(time.Now().Add(held))
	var one [1]byte
	if _, err := io.ReadFull(conn, one[:]); err == nil {
		sleep(ctx, held)
	}
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
