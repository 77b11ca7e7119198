package transporttest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/internal/testkit"
)

// pass lets time pass. It is for bubbles, where time passes when everybody waits.
func pass(d time.Duration) { <-time.After(d) }

// pairOf connects two members of a new mesh.
func pairOf(t *testing.T) (near, far net.Conn) {
	t.Helper()
	m := NewMesh()
	l, err := m.Network(2).Listen()
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if near, err = m.Network(1).Dial(t.Context(), Target{Member: 2}); err != nil {
		t.Fatal(err)
	}
	if far, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { near.Close(); far.Close() })
	return near, far
}

// Bytes arrive whole and in order, whatever the sizes of writes and reads, in both directions at
// once.
func TestMeshCarriesBytes(t *testing.T) {
	seed := testkit.Seed(t)
	near, far := pairOf(t)
	data := make([]byte, 3<<20)
	rng := rand.New(rand.NewPCG(seed, 1))
	for i := range data {
		data[i] = byte(rng.Uint32())
	}
	send := func(c net.Conn, rng *rand.Rand) {
		for rest := data; len(rest) > 0; {
			n := min(len(rest), 1+rng.IntN(400<<10))
			if k, err := c.Write(rest[:n]); k != n || err != nil {
				t.Errorf("wrote %d of %d: %v", k, n, err)
				return
			}
			rest = rest[n:]
		}
	}
	receive := func(c net.Conn, rng *rand.Rand, done chan<- []byte) {
		var got []byte
		b := make([]byte, 300<<10)
		for len(got) < len(data) {
			n, err := c.Read(b[:1+rng.IntN(len(b))])
			if err != nil {
				t.Error(err)
				break
			}
			got = append(got, b[:n]...)
		}
		done <- got
	}
	there, back := make(chan []byte, 1), make(chan []byte, 1)
	go send(near, rand.New(rand.NewPCG(seed, 2)))
	go send(far, rand.New(rand.NewPCG(seed, 3)))
	go receive(far, rand.New(rand.NewPCG(seed, 4)), there)
	go receive(near, rand.New(rand.NewPCG(seed, 5)), back)
	if !bytes.Equal(<-there, data) || !bytes.Equal(<-back, data) {
		t.Fatal("bytes were changed")
	}
}

// C4.1: a connection that is closed while the other end uses it, on either side, ends and holds up
// nobody.
func TestMeshClose(t *testing.T) {
	near, far := pairOf(t)
	near.Write([]byte("last words"))
	near.Close()
	near.Close()
	if got, err := io.ReadAll(far); string(got) != "last words" || err != nil {
		t.Fatalf("%q, %v", got, err)
	}
	if _, err := far.Write([]byte("x")); !errors.Is(err, io.ErrClosedPipe) {
		t.Fatal(err)
	}
	for _, do := range []func() error{
		func() error { _, err := near.Read(make([]byte, 1)); return err },
		func() error { _, err := near.Write(make([]byte, 1)); return err },
	} {
		if err := do(); !errors.Is(err, net.ErrClosed) {
			t.Fatal(err)
		}
	}
}

func TestMeshDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := pairOf(t)
		timed := func(what string, want time.Duration, do func() error) {
			t.Helper()
			begin := time.Now()
			err := do()
			var timeout net.Error
			if !errors.Is(err, os.ErrDeadlineExceeded) || !errors.As(err, &timeout) || !timeout.Timeout() {
				t.Fatalf("%s: %v", what, err)
			}
			if took := time.Since(begin); took != want {
				t.Fatalf("%s took %v, want %v", what, took, want)
			}
		}
		read := func() error { _, err := near.Read(make([]byte, 1)); return err }
		fill := func() error { _, err := near.Write(make([]byte, MeshBuffer+1)); return err }
		near.SetDeadline(time.Now().Add(time.Second))
		timed("read", time.Second, read)
		timed("second read", 0, read)
		timed("write", 0, fill)
		near.SetDeadline(time.Now().Add(time.Second))
		timed("full write", time.Second, fill)

		// A new deadline, earlier or later, wakes a waiting Read.
		near.SetReadDeadline(time.Now().Add(time.Hour))
		go func() {
			pass(time.Second)
			near.SetReadDeadline(time.Now().Add(time.Second))
			pass(time.Second / 2)
			near.SetReadDeadline(time.Now().Add(3 * time.Second))
		}()
		timed("moved", 4500*time.Millisecond, read)
		near.SetReadDeadline(time.Time{})
		go func() {
			pass(time.Hour)
			far.Write([]byte("x"))
		}()
		if err := read(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestMeshListen(t *testing.T) {
	m := NewMesh()
	n := m.Network(2)
	if _, err := m.Network(1).Dial(t.Context(), Target{Member: 2}); !errors.Is(err, ErrNoListener) {
		t.Fatal(err)
	}
	l, err := n.Listen()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.Listen(); !errors.Is(err, errInUse) {
		t.Fatal(err)
	}
	var waiting []net.Conn
	for {
		c, err := m.Network(1).Dial(t.Context(), Target{Member: 2})
		if errors.Is(err, errCrowded) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		waiting = append(waiting, c)
	}
	if len(waiting) != meshBacklog {
		t.Fatalf("%d connections wait", len(waiting))
	}
	l.Close()
	l.Close()
	for _, c := range waiting {
		if _, err := c.Read(make([]byte, 1)); err != io.EOF {
			t.Fatalf("not accepted: %v", err)
		}
		c.Close()
	}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Fatal(err)
	}
	if l, err = n.Listen(); err != nil {
		t.Fatal(err)
	}
	l.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := m.Network(1).Dial(ctx, Target{Member: 2}); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}
