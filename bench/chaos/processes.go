//go:build unix && !member

package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
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
func (p processes) Found(dir string, size, _ int) (campaign.Host, error) {
	addrs, err := child.FreeAddrs(2 * size)
	if err != nil {
		return nil, err
	}
	m := &machines{dir: dir, old: p.old, members: make(map[embed.MemberID]string), doors: make(map[embed.MemberID]string)}
	for i := range size {
		id := embed.MemberID(i + 1)
		m.members[id], m.doors[id] = addrs[i], addrs[size+i]
	}
	return m, nil
}

// machines are the places of an ensemble's processes. Immutable.
type machines struct {
	dir     string
	old     string // as in processes
	members map[embed.MemberID]string
	doors   map[embed.MemberID]string // addresses of the members' gateways
}

func (m *machines) Home(id embed.MemberID) campaign.Home {
	return campaign.Home{Dir: filepath.Join(m.dir, fmt.Sprintf("member-%d", id)), Members: m.members, Door: m.doors[id]}
}

func (m *machines) Spawn(_ embed.MemberID, log string) (campaign.Process, error) {
	p, err := child.Spawn[campaign.Request, campaign.Reply](memberVariable, log)
	return process{p}, err
}

func (m *machines) SpawnOld(_ embed.MemberID, log string) (campaign.Process, error) {
	p, err := child.SpawnProgram[campaign.Request, campaign.Reply](m.old, memberVariable, log)
	return process{p}, err
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
