package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/vivarium-go/vivarium/embed/lock"
)

// Limits of the traffic between the processes.
const (
	bodyMax     = 1 << 20         // bytes of one request or answer
	askTimeout  = 5 * time.Second // for an answer that does not have to wait for anything
	ordersAtOne = 200             // orders in one answer
)

// A desk is the parent's HTTP server on loopback: the ledger, and the orders as they come in.
type desk struct {
	// Immutable after newDesk.
	ledger *ledger
	orders []order
	server *server

	in atomic.Int64 // how many of the orders have come in
}

// newDesk opens the desk on a loopback port. close closes it.
func newDesk(l *ledger, orders []order) (*desk, error) {
	d := &desk{ledger: l, orders: orders}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /enter", answer(func(_ context.Context, e entry) (bool, error) { return l.enter(e) }))
	mux.HandleFunc("POST /book", answer(func(_ context.Context, e entry) (bool, error) { return true, l.book(e) }))
	mux.HandleFunc("POST /leave", answer(func(_ context.Context, e leaving) (bool, error) { return l.leave(e), nil }))
	mux.HandleFunc("POST /orders", answer(d.from))
	var err error
	d.server, err = serve(mux)
	return d, err
}

// letIn lets the first n orders come in.
func (d *desk) letIn(n int) { d.in.Store(int64(n)) }

// from returns orders that have come in, beginning with the n-th.
func (d *desk) from(_ context.Context, n int) ([]order, error) {
	if n < 0 {
		return nil, fmt.Errorf("there is no order %d", n)
	}
	end := min(int(d.in.Load()), n+ordersAtOne)
	return d.orders[min(n, end):end], nil
}

// A deskClient is the desk as a member sees it.
type deskClient struct{ client }

func (c deskClient) enter(ctx context.Context, e entry) (booked bool, err error) {
	err = c.ask(ctx, "/enter", e, &booked)
	return booked, err
}

func (c deskClient) book(ctx context.Context, e entry) error {
	return c.ask(ctx, "/book", e, new(bool))
}

// leave ends the stay that the holder began with enter, and must come before the hold's release. It
// tries until the desk answers, but only once if ctx is over.
func (c deskClient) leave(ctx context.Context, e entry, hold *lock.Hold) {
	for ended := false; ; pause(ctx, retryPause) {
		over := ctx.Err() != nil
		err := c.ask(context.WithoutCancel(ctx), "/leave", leaving{e, hold.Err() != nil}, &ended)
		if ended && err == nil || over {
			return
		}
	}
}

func (c deskClient) from(ctx context.Context, n int) (orders []order, err error) {
	err = c.ask(ctx, "/orders", n, &orders)
	return orders, err
}

// A server answers JSON with JSON on a loopback port.
type server struct {
	addr string
	http *http.Server
	done chan struct{}
}

// serve starts a server. close stops it.
func serve(h http.Handler) (*server, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &server{
		addr: listener.Addr().String(),
		http: &http.Server{Handler: h, ReadHeaderTimeout: askTimeout},
		done: make(chan struct{}),
	}
	go func() {
		defer close(s.done)
		_ = s.http.Serve(listener) // it always ends with an error
	}()
	return s, nil
}

func (s *server) close() {
	_ = s.http.Close()
	<-s.done
}

// answer makes a handler of a function. A stale token is a conflict; any other error is the
// server's.
func answer[Q, A any](fn func(context.Context, Q) (A, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var q Q
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, bodyMax)).Decode(&q); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		a, err := fn(r.Context(), q)
		switch {
		case errors.Is(err, errStale):
			http.Error(w, err.Error(), http.StatusConflict)
		case err != nil:
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		default:
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(a) // the peer may be gone
		}
	}
}

// A client asks a server.
type client struct {
	addr string
	http *http.Client
}

func newClient(addr string) client {
	// Each worker and each request of the parent keeps its connection.
	return client{addr, &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 2 * workersPer}}}
}

// ask posts q and reads the answer. After an error the server may have received q.
func (c client) ask(ctx context.Context, path string, q, answer any) error {
	body, err := json.Marshal(q)
	if err != nil {
		return err
	}
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, askTimeout)
		defer cancel()
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+c.addr+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	got, err := c.http.Do(r)
	if err != nil {
		return err
	}
	defer got.Body.Close()
	text, err := io.ReadAll(io.LimitReader(got.Body, bodyMax))
	switch {
	case err != nil:
		return err
	case got.StatusCode == http.StatusConflict:
		return fmt.Errorf("%s: %w", path, errStale)
	case got.StatusCode != http.StatusOK:
		return errors.New(path + ": " + strconv.Itoa(got.StatusCode) + " " + string(bytes.TrimSpace(text)))
	}
	return json.Unmarshal(text, answer)
}

func (c client) close() { c.http.CloseIdleConnections() }
