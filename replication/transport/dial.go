package transport

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"time"
)

// A greeting does the dialler's half of a handshake in a version of the protocol.
type greeting func(conn net.Conn, r *bufio.Reader, version uint16) error

// dialMember connects to a member and does the handshake. The connection is adopted; the caller
// releases it.
func (t *Transport) dialMember(life context.Context, member uint64, p purpose) (net.Conn, *bufio.Reader, error) {
	to := Target{Member: member}
	if t.o.Address != nil {
		if to.Address = t.o.Address(member); to.Address == "" {
			return nil, nil, fmt.Errorf("the address of member %d is not known", member)
		}
	}
	return t.dial(life, to, func(conn net.Conn, r *bufio.Reader, version uint16) error {
		return t.dialHandshake(conn, r, member, p, version)
	})
}

// dial connects to a target. It offers the highest version of the protocol, and dials once more if
// the peer answers that it speaks only a lower one. It remembers nothing of that, so a peer with a
// newer build is met at its highest version the next time.
func (t *Transport) dial(life context.Context, to Target, greet greeting) (net.Conn, *bufio.Reader, error) {
	conn, r, err := t.dialIn(life, to, greet, t.o.Highest)
	if other, ok := err.(*versionError); ok {
		return t.dialIn(life, to, greet, other.version)
	}
	return conn, r, err
}

// dialIn dials in a version of the protocol.
func (t *Transport) dialIn(life context.Context, to Target, greet greeting, version uint16) (net.Conn, *bufio.Reader, error) {
	if t.o.Network == nil {
		return nil, nil, ErrAlone
	}
	ctx, cancel := context.WithTimeout(life, dialTimeout)
	defer cancel()
	conn, err := t.o.Network.Dial(ctx, to)
	if err != nil {
		return nil, nil, err
	}
	if !t.adopt(conn) {
		return nil, nil, ErrShut
	}
	stop := context.AfterFunc(life, func() { cut(conn) })
	defer stop()
	r := bufio.NewReaderSize(conn, answerBuffer)
	if err := greetInTime(conn, r, greet, version); err != nil {
		t.release(conn)
		return nil, nil, err
	}
	return conn, r, nil
}

// greetInTime does the handshake with its deadline.
func greetInTime(conn net.Conn, r *bufio.Reader, greet greeting, version uint16) error {
	if err := conn.SetDeadline(time.Now().Add(handshakeTimeout)); err != nil {
		return err
	}
	if err := greet(conn, r, version); err != nil {
		return err
	}
	return conn.SetDeadline(time.Time{})
}

// A versionError says that the peer does not speak the version that was offered, but another one
// that this build speaks.
type versionError struct{ version uint16 }

func (e *versionError) Error() string {
	return fmt.Sprintf("the peer now speaks version %d of the protocol between members: its build was replaced", e.version)
}

// answeredIn returns the error for an answer in another version than was offered. The verdict after
// it says nothing more. It cannot even name our nonce, because the peer has not read it.
func (t *Transport) answeredIn(version uint16, member uint64) error {
	if protocolMin <= version && version <= t.o.Highest {
		return &versionError{version}
	}
	old := member
	if version > t.o.Highest {
		old = t.self().Member
	}
	return refusal(ErrOtherVersion, "member %d answers in version %d of the protocol between members, member %d speaks versions %d to %d: start a newer build on member %d",
		member, version, t.self().Member, protocolMin, t.o.Highest, old)
}
