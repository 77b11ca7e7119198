package campaign

import (
	"io"
	"net"
	"testing"

	"github.com/vivarium-go/vivarium/internal/testkit"
)

func TestWires(t *testing.T) {
	var w wires
	connect := func() (near, server net.Conn) {
		far, server, err := pair()
		testkit.Must(t, err)
		near, err = w.over(far)
		testkit.Must(t, err)
		t.Cleanup(func() { near.Close(); server.Close() })
		return near, server
	}
	say := func(from net.Conn, text string) {
		t.Helper()
		_, err := io.WriteString(from, text)
		testkit.Must(t, err)
	}
	hear := func(to net.Conn, want string) {
		t.Helper()
		got := make([]byte, len(want))
		_, err := io.ReadFull(to, got)
		testkit.Must(t, err)
		if string(got) != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	near, server := connect()
	say(near, "there")
	hear(server, "there")

	// What is sent over a cut wire arrives when it is mended, and in order.
	w.set(link{Cut: true})
	say(near, "a")
	say(server, "b")
	heard := make(chan byte)
	go func() {
		one := make([]byte, 1)
		server.Read(one)
		heard <- one[0]
	}()
	say(near, "c")
	select {
	case b := <-heard:
		t.Errorf("heard %q over a cut wire", b)
	default:
	}
	w.set(link{})
	if b := <-heard; b != 'a' {
		t.Errorf("heard %q first", b)
	}
	hear(server, "c")
	hear(near, "b")

	// A lost message ends both ends of its connection.
	w.set(link{Loss: 1})
	say(near, "lost")
	for _, c := range []net.Conn{near, server} {
		if n, err := c.Read(make([]byte, 1)); err == nil {
			t.Errorf("read %d bytes", n)
		}
	}
	w.set(link{})
	near, server = connect()
	say(server, "anew")
	hear(near, "anew")
}
