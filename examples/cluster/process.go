package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/vivarium-go/vivarium/embed"
)

// Starting.
const (
	processes    = 3
	processesMax = 7                // with -scale
	startTimeout = 30 * time.Second // for the hello of a process
	startTries   = 10               // with other ports, when one is in use
	// The ports are below the ranges that systems use for outgoing connections. Such a connection
	// could occupy the port of a member that is about to restart.
	portFirst = 20000
	portLast  = 29999
)

// errInUse says that a port of a member is in use.
var errInUse = errors.New("a port is in use")

// A process is a running member.
type process struct {
	// Immutable after startProcess.
	id      int
	control client
	command *exec.Cmd
	stdin   io.WriteCloser
	logFile string
	exited  chan struct{} // closed when it has ended
	exitErr error         // read after exited
}

// startProcess starts this program as a member. It returns errInUse if the member's port is in use.
func startProcess(cfg memberConfig) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &process{id: cfg.Process, logFile: cfg.Dir + ".log", exited: make(chan struct{})}
	log, err := os.OpenFile(p.logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close() // the process has its own
	p.command = exec.Command(self, memberCommand)
	p.command.Stderr = log
	if p.stdin, err = p.command.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := p.command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.command.Start(); err != nil {
		return nil, err
	}
	first := make(chan hello, 1)
	go p.waitLoop(stdout, first)
	if err := json.NewEncoder(p.stdin).Encode(cfg); err != nil {
		p.kill()
		return nil, fmt.Errorf("process %d: %w", p.id, err)
	}
	return p, p.greet(first)
}

// waitLoop reads the hello and waits for the end of the process.
func (p *process) waitLoop(stdout io.Reader, first chan<- hello) {
	defer close(p.exited)
	in := bufio.NewReader(stdout)
	var h hello
	if line, err := in.ReadBytes('\n'); err != nil || json.Unmarshal(line, &h) != nil {
		h = hello{Error: "it ended without a word: " + p.lastWords()}
	}
	first <- h
	_, _ = io.Copy(io.Discard, in)
	p.exitErr = p.command.Wait()
}

func (p *process) greet(first <-chan hello) error {
	late := time.NewTimer(startTimeout)
	defer late.Stop()
	var h hello
	select {
	case h = <-first:
	case <-late.C:
		h.Error = "no word from it for " + startTimeout.String()
	}
	switch {
	case h.InUse:
		p.kill()
		return fmt.Errorf("process %d: %w: %s", p.id, errInUse, h.Error)
	case h.Error != "":
		p.kill()
		return fmt.Errorf("process %d: %s", p.id, h.Error)
	}
	p.control = newClient(h.Control)
	return nil
}

// lastWords returns the last line of the process's log.
func (p *process) lastWords() string {
	log, err := os.ReadFile(p.logFile)
	if err != nil {
		return err.Error()
	}
	log = bytes.TrimSpace(log)
	return string(log[bytes.LastIndexByte(log, '\n')+1:])
}

// kill ends the process at once (SIGKILL) and waits until it is gone.
func (p *process) kill() {
	_ = p.command.Process.Kill() // it may have ended
	p.bury()
}

// stop asks the process to end, waits a while, and then kills it.
func (p *process) stop() error {
	_ = p.stdin.Close() // it may have ended
	late := time.NewTimer(10 * stopTimeout)
	defer late.Stop()
	select {
	case <-p.exited:
	case <-late.C:
		_ = p.command.Process.Kill()
	}
	p.bury()
	if p.exitErr != nil {
		return fmt.Errorf("process %d did not end in an orderly way (%w): %s", p.id, p.exitErr, p.lastWords())
	}
	return nil
}

func (p *process) bury() {
	<-p.exited
	_ = p.stdin.Close()
	if p.control.http != nil {
		p.control.close()
	}
}

func (p *process) status(ctx context.Context) (st status, err error) {
	err = p.control.ask(ctx, "/status", true, &st)
	return st, err
}

// config returns what the parent tells a member.
func (e *ensemble) config(id int) memberConfig {
	cfg := e.common
	cfg.Process, cfg.ID, cfg.Members = id, embed.MemberID(id), e.addrs
	cfg.Dir = filepath.Join(e.dir, "member-"+strconv.Itoa(id))
	if !e.grows {
		return cfg
	}
	cfg.Name = "process-" + strconv.Itoa(id)
	cfg.Join = slices.Sorted(maps.Values(e.addrs))
	if id == founder {
		cfg.Members = map[embed.MemberID]string{founder: e.addrs[founder]}
		return cfg
	}
	cfg.ID, cfg.Members, cfg.Advertise = 0, nil, e.addrs[embed.MemberID(id)]
	return cfg
}

// freePorts returns loopback addresses whose ports were free a moment ago.
func freePorts(n int) (map[embed.MemberID]string, error) {
	addrs := make(map[embed.MemberID]string)
	for tries := 0; len(addrs) < n; tries++ {
		port := portFirst + rand.IntN(portLast-portFirst+1)
		l, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(port))
		if err != nil {
			if tries > 1000 {
				return nil, err
			}
			continue
		}
		defer l.Close() // only at the end, so that no port is chosen twice
		addrs[embed.MemberID(len(addrs)+1)] = l.Addr().String()
	}
	return addrs, nil
}
