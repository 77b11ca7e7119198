//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/vivarium-go/vivarium/bench/internal/measure"
	"github.com/vivarium-go/vivarium/internal/testkit/zookeeper"
)

// zooKeeper is an ensemble with the settings of the example that comes with ZooKeeper. Each member
// has a process. The processes of members that run elsewhere are nil.
type zooKeeper struct {
	place  place
	server [members]*exec.Cmd
}

func startZooKeeper(p place) (ensemble, error) {
	z := &zooKeeper{place: p}
	err := z.start()
	if err != nil {
		z.close()
		return nil, err
	}
	return z, nil
}

func (z *zooKeeper) start() error {
	for _, i := range z.place.Here {
		file, err := z.configure(i)
		if err != nil {
			return err
		}
		cmd := exec.Command("java", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", zookeeper.ClassPath(), zookeeper.Server, file)
		cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
		// it ends with its worker
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := cmd.Start(); err != nil {
			return err
		}
		z.server[i] = cmd
	}
	for _, i := range z.place.Here {
		if err := measure.Until("a member of ZooKeeper", func() bool { return z.ask(i, "Mode") != "" }); err != nil {
			return err
		}
	}
	return nil
}

// noZooKeeper returns an error unless ZooKeeper is installed.
func noZooKeeper() error {
	if zookeeper.Installed() {
		return nil
	}
	return errors.New(zookeeper.Missing)
}

// configure writes a member's files and returns the configuration file.
func (z *zooKeeper) configure(member int) (file string, err error) {
	dir := z.place.dir(member)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	_, port, err := net.SplitHostPort(z.place.Addrs[member][1])
	if err != nil {
		return "", err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "tickTime=2000\ninitLimit=10\nsyncLimit=5\nforceSync=yes\nadmin.enableServer=false\nmaxClientCnxns=0\ndataDir=%s\nclientPort=%s\n", dir, port)
	for i, addrs := range z.place.Addrs {
		_, election, err := net.SplitHostPort(addrs[2])
		if err != nil {
			return "", err
		}
		if len(z.place.Addrs) > 1 {
			fmt.Fprintf(&b, "server.%d=%s:%s\n", i+1, addrs[0], election)
		}
	}
	file = filepath.Join(dir, "zoo.cfg")
	return file, errors.Join(os.WriteFile(file, []byte(b.String()), 0o644),
		os.WriteFile(filepath.Join(dir, "myid"), []byte(strconv.Itoa(member+1)), 0o644))
}

// ask returns the value of a line in a serving member's report about itself. It is empty if the
// member does not serve.
func (z *zooKeeper) ask(member int, what string) string {
	for line := range strings.Lines(zookeeper.Ask(z.place.Addrs[member][1], "srvr")) {
		if value, ok := strings.CutPrefix(line, what+": "); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

func (z *zooKeeper) leader() (int, error) {
	for i := range z.place.Addrs {
		if mode := z.ask(i, "Mode"); mode == "leader" || mode == "standalone" {
			return i, nil
		}
	}
	return 0, errors.New("no member leads")
}

// entries returns the counter in the newest zxid.
func (z *zooKeeper) entries() (uint64, error) {
	zxid, err := strconv.ParseUint(z.ask(z.place.Here[0], "Zxid"), 0, 64)
	return zxid & 0xffffffff, err
}

func (z *zooKeeper) pids() (pids []int) {
	for _, i := range z.place.Here {
		pids = append(pids, z.server[i].Process.Pid)
	}
	return pids
}

func (z *zooKeeper) close() {
	for _, cmd := range z.server {
		if cmd != nil {
			_ = cmd.Process.Signal(syscall.SIGTERM)
		}
	}
	for _, cmd := range z.server {
		if cmd != nil {
			_ = cmd.Wait() // the error only says that a signal ended it
		}
	}
}

// quiet discards the client's log. The errors of the client's calls say the same.
type quiet struct{}

func (quiet) Printf(string, ...any) {}

func (z *zooKeeper) open(member int) (session, error) {
	addrs := []string{z.place.Addrs[member][1]}
	// other members may die: as usual, a client knows all members
	if len(z.place.Here) < len(z.place.Addrs) {
		addrs = nil
		for _, a := range z.place.Addrs {
			addrs = append(addrs, a[1])
		}
	}
	return dialZooKeeper(addrs...)
}

// dialZooKeeper opens a connection of ZooKeeper's protocol and returns when it has a session.
func dialZooKeeper(addrs ...string) (session, error) {
	c, events, err := zk.Connect(addrs, dialTimeout, zk.WithLogger(quiet{}), zk.WithLogInfo(false))
	if err != nil {
		return nil, err
	}
	late := time.After(time.Minute)
	for {
		select {
		case e := <-events:
			if e.State == zk.StateHasSession {
				return zooKeeperSession{c}, nil
			}
		case <-late:
			c.Close()
			return nil, errors.New("no session within a minute")
		}
	}
}

type zooKeeperSession struct{ c *zk.Conn }

func (z zooKeeperSession) close() error {
	z.c.Close()
	return nil
}

func (z zooKeeperSession) make(path string, data []byte) error {
	_, err := z.c.Create(path, data, 0, zk.WorldACL(zk.PermAll))
	return err
}

func (z zooKeeperSession) set(path string) (op, error) {
	data := make([]byte, payload)
	return func() error {
		_, err := z.c.Set(path, data, -1)
		return err
	}, z.make(path, data)
}

func (z zooKeeperSession) get(path string) (op, error) {
	return func() error {
		data, _, err := z.c.Get(path)
		return check(data, err)
	}, nil
}

func (z zooKeeperSession) syncGet(path string) (op, error) {
	return func() error {
		if _, err := z.c.Sync(path); err != nil {
			return err
		}
		data, _, err := z.c.Get(path)
		return check(data, err)
	}, nil
}

// zooKeeperHold is an acquired lock of the client.
type zooKeeperHold struct{ l *zk.Lock }

func (h zooKeeperHold) Release() error { return h.l.Unlock() }

func (z zooKeeperSession) lock(kind lockKind, path string) (acquire, error) {
	if kind != mutex {
		return nil, errMissing
	}
	l := zk.NewLock(z.c, path, zk.WorldACL(zk.PermAll))
	return func(context.Context) (hold, error) { return zooKeeperHold{l}, l.Lock() }, nil
}

func (z zooKeeperSession) create(parent string) (op, error) {
	path, acl := parent+"/n", zk.WorldACL(zk.PermAll)
	return func() error {
		_, err := z.c.Create(path, nil, zk.FlagEphemeral|zk.FlagSequence, acl)
		return err
	}, nil
}

func (z zooKeeperSession) watch(path string) (watch, error) {
	var events <-chan zk.Event
	again := func() (err error) { // a watch has only one event
		_, _, events, err = z.c.GetW(path)
		return err
	}
	return watch{told: func() error { return (<-events).Err }, again: again}, again()
}

// arm is missing: the server keeps only one of a session's watches on one znode.
func (z zooKeeperSession) arm(string, int) (any, error) { return nil, errMissing }
