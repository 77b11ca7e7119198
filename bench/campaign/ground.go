package campaign

import (
	"context"
	"io"
	"net"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
)

// Blur is how far Ground.Now may be ahead.
const Blur = 10 * time.Microsecond

// A Ground is where the ensembles of a campaign live.
type Ground interface {
	// Now reads a clock that the campaign and all members share and that nobody sets. It may be
	// ahead by as much as Blur, so that it never shows the same time twice.
	Now() time.Duration
	// Round runs a round and returns when it is over.
	Round(play func())
	// Found prepares the machines of a new ensemble of so many founders. With spares its members
	// come and go, and so many of the places are vacant at first. The files of its members will be
	// in dir. If portion is not zero, it is the members' embedtest.Options.EndPortion.
	Found(dir string, size, spares, portion int) (Host, error)
}

// A Host is where the members of one ensemble live. Its methods may be called concurrently. It
// knows a member by its place, which keeps its directory, its links and its gateway. The places of
// the founders are their ids. A member that joins gets its id from the ensemble.
type Host interface {
	// Home returns what a member's process has to know to start.
	Home(id embed.MemberID) Home
	// Spawn starts a process for a member. What the process logs is appended to the file log.
	Spawn(id embed.MemberID, log string) (Process, error)
	// Dial connects to the gateway of a member.
	Dial(ctx context.Context, id embed.MemberID) (net.Conn, error)
	// Rename moves a file or directory of a member to another name.
	Rename(id embed.MemberID, from, to string) error
	// Wipe empties the directory of a member that does not run.
	Wipe(id embed.MemberID) error
	// Readdress gives a member that does not run another address. Nobody listens at the old one.
	Readdress(id embed.MemberID)
}

// A PowerCutter is a Host with power that can fail.
type PowerCutter interface {
	// PowerCut kills the members' processes, all at one moment, and waits for their end. Their
	// disks lose what was not synced, in parts by chance.
	PowerCut(ids ...embed.MemberID)
}

// A Home is the part of a member's configuration that depends on its Ground.
type Home struct {
	Dir     string
	Members map[embed.MemberID]string
	Door    string // address of its gateway
	// Doors are the addresses of the gateways in all places, for clients in the process. Settings.Remote
	// needs them.
	Doors []string `json:",omitempty"`
	// Config.Join and Config.Advertise, and the places by address. Empty: the members stay.
	Join      []string                  `json:",omitempty"`
	Advertise string                    `json:",omitempty"`
	Places    map[string]embed.MemberID `json:",omitempty"`
}

// A Process is one run of a member's program. Its methods may be called concurrently.
type Process interface {
	// Send sends a request and returns at once. The channel receives the answer. It is closed if
	// the process dies first. notice, if not nil, is called for each notice before the answer, in
	// order.
	Send(q Request, notice func(Reply)) <-chan Reply
	// Pause makes the process stand still until Resume.
	Pause()
	Resume()
	// Kill ends the process. It does not wait for the end.
	Kill()
	// Dead returns a channel that is closed when the process is gone and all its answers were
	// passed on.
	Dead() <-chan struct{}
	// DiedAlone says how a dead process has ended, and whether that was without Kill.
	DiedAlone() (how string, alone bool)
}

// A Machine is what a member's process runs on.
type Machine struct {
	Now    func() time.Duration // Ground.Now
	Faults *embedtest.Faults    // what is broken for the process
	Start  func(cfg embed.Config) (*embed.Node, error)
	Close  func(n *embed.Node) error
	// Recover does what the command vivarium recover does, to the directory of the home. The given
	// voters are lost. Nil means that the member's build has no such command.
	Recover func(ctx context.Context, h Home, lost []embed.MemberID) error
	Log     io.Writer
	// Compact lets all members cut their logs, so that few entries are left for members that lag.
	// It is nil where only bulk does that.
	Compact func()
	// Ask is the pause between two questions of a holder. Other pauses of the member are multiples.
	Ask time.Duration
}
