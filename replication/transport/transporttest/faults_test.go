package transporttest

import "testing"

// Faults keep no connection that was closed.
func TestFaultsForgetClosedConnections(t *testing.T) {
	m, f := NewMesh(), NewFaults()
	l, err := m.Network(2).Listen()
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	conn, err := f.Network(m.Network(1)).Dial(t.Context(), Target{Member: 2})
	if err != nil {
		t.Fatal(err)
	}
	if n := len(f.mu.links[2].conns); n != 1 {
		t.Fatalf("%d connections are known", n)
	}
	conn.Close()
	if n := len(f.mu.links[2].conns); n != 0 {
		t.Errorf("%d connections are kept", n)
	}
}
