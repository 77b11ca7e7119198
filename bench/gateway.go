//go:build linux

package main

import (
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/vivarium-go/vivarium/bench/internal/measure"
	"github.com/vivarium-go/vivarium/internal/wire"
)

// The operations of clients over connections.
const (
	onSet = "set"
	onGet = "get"
)

// measureGateway measures members called by clients that speak ZooKeeper's protocol.
func measureGateway(w *worker, l line) (f figures, err error) {
	if err := w.spawnServers(); err != nil {
		return f, err
	}
	if l.On == onIdle {
		return measureIdleClients(w, l)
	}
	return w.measureClients(l, dialZooKeeper)
}

// measureClient measures members called by the clients of their own systems.
func measureClient(w *worker, l line) (f figures, err error) {
	if err := w.spawnServers(); err != nil {
		return f, err
	}
	return w.measureClients(l, w.system.dial)
}

// spawnServers starts members that clients can connect to, unless they run already.
func (w *worker) spawnServers() error {
	if w.processes != nil {
		return nil
	}
	w.Place.Door = true
	return w.spawnMembers()
}

// measureClients measures members in processes of their own. Each client has a connection and a
// session. The clients spread over the members in turn and run in this process, which has no member.
func (w *worker) measureClients(l line, dial func(addrs ...string) (session, error)) (f figures, err error) {
	ops, err := w.clientOps(l, dial)
	if err != nil {
		return f, err
	}
	began := time.Now()
	before, err := w.memberCPU()
	if err != nil {
		return f, err
	}
	load, err := measure.Run(w.Window, ops...)
	if err != nil {
		return f, err
	}
	after, err := w.memberCPU()
	if err != nil {
		return f, err
	}
	cores := (after - before).Seconds() / time.Since(began).Seconds()
	f = figures{Rate: load.Rate, P50: load.P50, P99: load.P99}
	if load.Rate > 0 {
		f.Values = map[string]float64{"members_us_each": 1e6 * cores / load.Rate, "clients_us_each": 1e6 * load.CPU / load.Rate}
	}
	return f, nil
}

// memberCPU returns the CPU time that the members' processes have used.
func (w *worker) memberCPU() (sum time.Duration, err error) {
	for _, p := range w.processes {
		a, err := p.ask(request{Do: doCost}, patience)
		if err != nil {
			return 0, err
		}
		sum += a.Cost.CPU
	}
	return sum, nil
}

// clientOps connects as many clients as are missing and returns the ops of a line. It keeps the ops
// for the next round.
func (w *worker) clientOps(l line, dial func(addrs ...string) (session, error)) ([]op, error) {
	key := callersKey{line: l}
	if ops := w.callers[key]; ops != nil {
		return ops, nil
	}
	a, err := w.processes[0].ask(request{Do: doLeader}, patience)
	if err != nil {
		return nil, err
	}
	had := len(w.clients)
	w.clients = append(w.clients, make([]session, max(0, l.Clients-had))...)
	ops := make([]op, l.Clients)
	err = inParallel(l.Clients, min(width, l.Clients), func(i int) (err error) {
		if i >= had {
			if w.clients[i], err = dial(w.Place.Addrs[l.member(a.Leader, i)][1]); err != nil {
				return err
			}
		}
		prepare := session.set
		if l.On == onGet {
			prepare = written(session.get)
		}
		ops[i], err = prepare(w.clients[i], w.path())
		return err
	})
	if err != nil {
		return nil, err
	}
	w.callers[key] = ops
	return ops, nil
}

// idleTimeout is the session timeout of idle clients. Like go-zookeeper they ping three times per
// timeout.
const idleTimeout = 30 * time.Second

// measureIdleClients measures what many connections cost a follower while their clients do nothing
// but ping. The clients are bare, because this process has to hold as many connections as the
// member.
func measureIdleClients(w *worker, l line) (f figures, err error) {
	a, err := w.processes[0].ask(request{Do: doLeader}, patience)
	if err != nil {
		return f, err
	}
	member := (a.Leader + 1) % members
	cost := func(collected bool) cost {
		if err == nil {
			a, err = w.processes[member].ask(request{Do: doCost, Collected: collected}, patience)
		}
		return a.Cost
	}
	conns := make([]net.Conn, w.scaled(l.Clients))
	defer func() {
		for _, c := range conns {
			if c != nil {
				_ = c.Close()
			}
		}
	}()
	// First: what a member costs without the connections.
	time.Sleep(w.Window)
	rate := func(t time.Duration) (cpu, entries float64) {
		before, began := cost(false), time.Now()
		time.Sleep(t)
		after, took := cost(false), time.Since(began).Seconds()
		return (after.CPU - before.CPU).Seconds() / took, float64(after.Entries-before.Entries) / took
	}
	cpuBefore, entriesBefore := rate(5 * w.Window)
	collected, resident := cost(true), cost(false).Resident
	began := time.Now()
	opened := inParallel(len(conns), min(width, len(conns)), func(i int) (err error) {
		conns[i], err = dialIdle(w.Place.Addrs[member][1])
		return err
	})
	if err := errors.Join(err, opened); err != nil {
		return f, err
	}
	took := time.Since(began)
	stop, pinged := make(chan struct{}), make(chan error, 1)
	go func() { pinged <- pingAll(conns, stop) }()
	time.Sleep(w.Window) // until the work that opening them caused is over
	cpu, entries := rate(15 * w.Window)
	now := cost(false)
	each := func(after, before float64) float64 { return (after - before) / float64(len(conns)) }
	f.Values = map[string]float64{"connections": float64(len(conns)), "opened_per_s": float64(len(conns)) / took.Seconds(),
		"resident_bytes_each": each(now.Resident, resident), "cpu_us_per_s_each": 1e6 * each(cpu, cpuBefore),
		"cpu_percent": 100 * cpu, "cpu_percent_without": 100 * cpuBefore, "entries_per_s": entries, "entries_per_s_without": entriesBefore}
	if now.Heap > 0 {
		now = cost(true)
		f.Values["heap_bytes_each"], f.Values["stack_bytes_each"] = each(now.Heap, collected.Heap), each(now.Stacks, collected.Stacks)
		f.Values["resident_bytes_each_collected"] = each(now.Resident, collected.Resident)
	}
	close(stop)
	return f, errors.Join(err, <-pinged)
}

// dialIdle opens a connection with a session.
func dialIdle(addr string) (net.Conn, error) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	hello := wire.ConnectRequest{Timeout: int32(idleTimeout.Milliseconds()), Password: make([]byte, 16)}
	var a wire.ConnectResponse
	frame, err := exchange(c, hello.AppendFrame(nil))
	if err == nil {
		err = a.Decode(frame)
	}
	if err == nil && a.Timeout != hello.Timeout {
		err = fmt.Errorf("a session %#x of %d ms, want %v", a.SessionID, a.Timeout, idleTimeout)
	}
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	return c, nil
}

// pingAll pings on one connection after the other, on each three times per timeout, until stop is
// closed.
func pingAll(conns []net.Conn, stop <-chan struct{}) error {
	q := wire.Request{Xid: wire.XidPing, Operation: wire.Operation{Op: wire.OpPing}}
	ping := q.AppendFrame(nil)
	next := time.NewTicker(idleTimeout / 3 / time.Duration(len(conns)))
	defer next.Stop()
	for i := 0; ; i = (i + 1) % len(conns) {
		select {
		case <-next.C:
		case <-stop:
			return nil
		}
		if _, err := exchange(conns[i], ping); err != nil {
			return fmt.Errorf("ping %d: %w", i, err)
		}
	}
}

// exchange sends a frame and reads one.
func exchange(c net.Conn, frame []byte) ([]byte, error) {
	if err := c.SetDeadline(time.Now().Add(idleTimeout)); err != nil {
		return nil, err
	}
	if _, err := c.Write(frame); err != nil {
		return nil, err
	}
	return wire.ReadFrame(c, nil, 1<<10)
}
