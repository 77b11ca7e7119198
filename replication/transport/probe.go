package transport

import "context"

// Probe connects to a member, does the handshake, and closes the connection. It returns nil if the
// member that answers is the right one, and both accept each other.
func (t *Transport) Probe(ctx context.Context, member uint64) error {
	life, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(t.ctx, cancel)()
	conn, _, err := t.dialMember(life, member, forMessages)
	if err == nil {
		t.release(conn)
	}
	return err
}
