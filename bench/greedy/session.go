//go:build linux

package main

import (
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/vivarium-go/vivarium/internal/wire"
)

// A session speaks ZooKeeper's protocol by hand. It belongs to one goroutine.
type session struct {
	conn net.Conn
	xid  int32
	buf  []byte
}

// patience is how long a session waits for an answer.
const patience = 30 * time.Second

var errRefused = errors.New("the gateway refuses")

func openSession(to, from string) (*session, error) {
	conn, err := dial(to, from)
	if err != nil {
		return nil, err
	}
	s := &session{conn: conn}
	if err := s.open(); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *session) close() { _ = s.conn.Close() }

func (s *session) open() error {
	q := wire.ConnectRequest{Timeout: 30_000, Password: make([]byte, 16)}
	if err := s.write(q.AppendFrame(nil)); err != nil {
		return err
	}
	var a wire.ConnectResponse
	frame, err := s.read()
	if err == nil {
		err = a.Decode(frame)
	}
	if err == nil && a.SessionID == 0 {
		err = errRefused
	}
	return err
}

func (s *session) write(b []byte) error {
	_ = s.conn.SetWriteDeadline(time.Now().Add(patience))
	_, err := s.conn.Write(b)
	return err
}

func (s *session) read() (frame []byte, err error) {
	_ = s.conn.SetReadDeadline(time.Now().Add(patience))
	s.buf, err = wire.ReadFrame(s.conn, s.buf, 64<<20)
	return s.buf, err
}

// send sends a request without waiting for its answer.
func (s *session) send(q wire.Request) error {
	s.xid++
	q.Xid = s.xid
	return s.write(q.AppendFrame(nil))
}

// call waits for the answer, and returns an error unless it is a good one.
func (s *session) call(q wire.Request) error {
	if err := s.send(q); err != nil {
		return err
	}
	for {
		frame, err := s.read()
		if err != nil {
			return err
		}
		var r wire.Reply
		if _, err := r.DecodeHeader(frame); err != nil {
			return err
		}
		if r.Xid != s.xid {
			continue // an event
		}
		if r.Err != wire.OK {
			return fmt.Errorf("op %d of %q: code %d", q.Op, q.Path, r.Err)
		}
		return nil
	}
}

func do(o wire.Op, path string) wire.Request {
	return wire.Request{Operation: wire.Operation{Op: o, Path: path, Version: -1}}
}

func create(path string, data []byte) wire.Request {
	q := do(wire.OpCreate, path)
	q.Data, q.ACL = data, []wire.ACL{{Perms: wire.PermAll, Scheme: "world", ID: "anyone"}}
	return q
}

func set(path string, data []byte) wire.Request {
	q := do(wire.OpSetData, path)
	q.Data = data
	return q
}
