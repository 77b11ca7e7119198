//go:build unix

package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/vivarium-go/vivarium/bench/campaign"
	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/engine/clock"
	"github.com/vivarium-go/vivarium/internal/testkit/child"
)

// memberVariable is the environment variable that makes this program a member of an ensemble.
const memberVariable = "VIVARIUM_CHAOS_MEMBER"

// runMember serves requests until standard input ends, because the parent is gone or wants this
// process to end. Either way the process ends without closing its node.
func runMember() {
	slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelInfo})))
	faults := embedtest.NewFaults()
	m := campaign.NewMember(campaign.Machine{
		Now:    now,
		Faults: faults,
		Start:  func(cfg embed.Config) (*embed.Node, error) { return embedtest.Start(cfg, faults) },
		Close:  (*embed.Node).Close,
		Log:    os.Stderr,
		Ask:    200 * time.Microsecond,
	})
	child.Serve(m.Serve)
}

// now reads a clock that all processes of the machine share and that nobody sets.
func now() time.Duration { return clock.System().Boot() }

// processes is a campaign.Ground of real processes, disks and connections.
type processes struct{}

func (processes) Now() time.Duration { return now() }

func (processes) Round(play func()) { play() }

// Found finds addresses for an ensemble.
func (processes) Found(dir string, size, _ int) (campaign.Host, error) {
	addrs, err := child.FreeAddrs(2 * size)
	if err != nil {
		return nil, err
	}
	m := &machines{dir: dir, members: make(map[embed.MemberID]string), doors: make(map[embed.MemberID]string)}
	for i := range size {
		id := embed.MemberID(i + 1)
		m.members[id], m.doors[id] = addrs[i], addrs[size+i]
	}
	return m, nil
}

// machines are the places of an ensemble's processes. Immutable.
type machines struct {
	dir     string
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
