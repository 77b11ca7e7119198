//go:build unix && !member

package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/vivarium-go/vivarium/bench/campaign"
	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/internal/testkit/child"
)

// processes is a campaign.Ground of real processes, disks and connections.
type processes struct {
	old string // the program of members with an older build, if there are any
}

func (processes) Now() time.Duration { return now() }

func (processes) Round(play func()) { play() }

// Found finds addresses for an ensemble. Its processes always have the usual portion.
func (p processes) Found(dir string, size, spares, _ int) (campaign.Host, error) {
	addrs, err := child.FreeAddrs(3 * (size + spares))
	if err != nil {
		return nil, err
	}
	m := &machines{dir: dir, old: p.old, members: make(map[embed.MemberID]string), doors: make(map[embed.MemberID]string)}
	m.moves, m.taken = make(map[embed.MemberID]int), make(map[embed.MemberID]bool)
	for i := range size + spares {
		id := embed.MemberID(i + 1)
		m.doors[id] = addrs[3*i]
		if i < size {
			m.members[id] = addrs[3*i+1]
		}
		if spares > 0 {
			m.addrs = append(m.addrs, [2]string{addrs[3*i+1], addrs[3*i+2]})
		}
	}
	return m, nil
}

// machines are the places of an ensemble's processes.
type machines struct {
	// Immutable after Found.
	dir     string
	old     string                    // as in processes
	members map[embed.MemberID]string // the founders
	doors   map[embed.MemberID]string // addresses of the members' gateways
	addrs   [][2]string               // those that each place has in turn, if members come and go

	mu    sync.Mutex
	moves map[embed.MemberID]int  // how many times a place has changed its address
	taken map[embed.MemberID]bool // places where somebody was
}

func (m *machines) Home(id embed.MemberID) campaign.Home {
	m.mu.Lock()
	defer m.mu.Unlock()
	h := campaign.Home{Dir: filepath.Join(m.dir, fmt.Sprintf("member-%d", id)), Members: m.members, Door: m.doors[id], Doors: slices.Sorted(maps.Values(m.doors)), Places: make(map[string]embed.MemberID)}
	for i, both := range m.addrs {
		for n, addr := range both {
			place := embed.MemberID(i + 1)
			h.Places[addr] = place
			// Founders wait for all in Join, so only addresses where somebody was or founds are there.
			if _, founds := m.members[place]; n <= m.moves[place] && (founds || m.taken[place]) {
				h.Join = append(h.Join, addr)
			}
			if place == id && n == m.moves[id]%2 {
				h.Advertise = addr
			}
		}
	}
	return h
}

func (m *machines) Readdress(id embed.MemberID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.moves[id]++
}

func (m *machines) Wipe(id embed.MemberID) error { return os.RemoveAll(m.Home(id).Dir) }

func (m *machines) Spawn(id embed.MemberID, log string) (campaign.Process, error) {
	m.mu.Lock()
	m.taken[id] = true
	m.mu.Unlock()
	p, err := child.Spawn[campaign.Request, campaign.Reply](memberVariable, log)
	return process{p}, err
}

func (m *machines) SpawnOld(_ embed.MemberID, log string) (campaign.Process, error) {
	p, err := child.SpawnProgram[campaign.Request, campaign.Reply](m.old, memberVariable, log)
	return process{p}, err
}

func (m *machines) Fingerprint(id embed.MemberID) (string, error) {
	sum := sha256.New()
	err := filepath.WalkDir(m.Home(id).Dir, func(name string, d fs.DirEntry, err error) error {
		fmt.Fprintln(sum, name)
		if err != nil || d.IsDir() {
			return err
		}
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = io.Copy(sum, f)
		return err
	})
	return hex.EncodeToString(sum.Sum(nil)), err
}

func (m *machines) Dial(ctx context.Context, id embed.MemberID) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "tcp", m.doors[id])
}

func (m *machines) Rename(_ embed.MemberID, from, to string) error { return os.Rename(from, to) }

// A process is one run of this program as a member.
type process struct {
	*child.Process[campaign.Request, campaign.Reply]
}

func (p process) Pause()  { p.Signal(syscall.SIGSTOP) }
func (p process) Resume() { p.Signal(syscall.SIGCONT) }
