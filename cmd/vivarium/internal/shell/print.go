package shell

import (
	"encoding/hex"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/vivarium-go/vivarium/cmd/vivarium/internal/client"
	"github.com/vivarium-go/vivarium/internal/wire"
)

// An output is where commands and watches print, both at any time. It does not mix the bytes of two
// Writes.
type output struct {
	mu   sync.Mutex
	to   io.Writer
	lost error // why a Write failed first
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n, err := o.to.Write(b)
	if o.lost == nil {
		o.lost = err
	}
	return n, err
}

func (o *output) err() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.lost
}

func (s *shell) println(a ...any) { fmt.Fprintln(s.out, a...) }

func (s *shell) printf(format string, a ...any) { fmt.Fprintf(s.out, format, a...) }

func (s *shell) errorln(a ...any) { fmt.Fprintln(s.err, a...) }

// stat prints a Stat like zkCli.
func (s *shell) stat(z *wire.Stat) {
	var b strings.Builder
	fmt.Fprintf(&b, "cZxid = 0x%x\n", uint64(z.Czxid))
	fmt.Fprintf(&b, "ctime = %s\n", date(z.Ctime))
	fmt.Fprintf(&b, "mZxid = 0x%x\n", uint64(z.Mzxid))
	fmt.Fprintf(&b, "mtime = %s\n", date(z.Mtime))
	fmt.Fprintf(&b, "pZxid = 0x%x\n", uint64(z.Pzxid))
	fmt.Fprintf(&b, "cversion = %d\n", z.Cversion)
	fmt.Fprintf(&b, "dataVersion = %d\n", z.Version)
	fmt.Fprintf(&b, "aclVersion = %d\n", z.Aversion)
	fmt.Fprintf(&b, "ephemeralOwner = 0x%x\n", uint64(z.EphemeralOwner))
	fmt.Fprintf(&b, "dataLength = %d\n", z.DataLength)
	fmt.Fprintf(&b, "numChildren = %d\n", z.NumChildren)
	s.printf("%s", b.String())
}

// date formats milliseconds as Java formats a Date.
func date(ms int64) string { return time.UnixMilli(ms).Format("Mon Jan 02 15:04:05 MST 2006") }

// list formats names as Java formats a List.
func list(names []string) string { return "[" + strings.Join(names, ", ") + "]" }

// text returns a znode's data as zkCli prints it: null is not the same as empty. Data that is not
// UTF-8 stays as it is, so that it can be redirected to a file.
func text(data []byte) string {
	if data == nil {
		return "null"
	}
	return string(data)
}

// hexdump formats data like Netty, which zkCli uses.
func hexdump(data []byte) string {
	if len(data) == 0 {
		return ""
	}
	const line = "+--------+-------------------------------------------------+----------------+"
	var b strings.Builder
	b.WriteString("         +-------------------------------------------------+\n")
	b.WriteString("         |  0  1  2  3  4  5  6  7  8  9  a  b  c  d  e  f |\n")
	b.WriteString(line)
	for at := 0; at < len(data); at += 16 {
		row := data[at:min(at+16, len(data))]
		fmt.Fprintf(&b, "\n|%08x|", at)
		for _, c := range row {
			b.WriteString(" " + hex.EncodeToString([]byte{c}))
		}
		b.WriteString(strings.Repeat("   ", 16-len(row)) + " |")
		for _, c := range row {
			if c <= 0x1f || c >= 0x7f {
				c = '.'
			}
			b.WriteByte(c)
		}
		b.WriteString(strings.Repeat(" ", 16-len(row)) + "|")
	}
	return b.String() + "\n" + line
}

var letters = []struct {
	letter byte
	perm   wire.Perms
}{{'c', wire.PermCreate}, {'d', wire.PermDelete}, {'r', wire.PermRead}, {'w', wire.PermWrite}, {'a', wire.PermAdmin}}

func perms(p wire.Perms) string {
	var b []byte
	for _, l := range letters {
		if p&l.perm != 0 {
			b = append(b, l.letter)
		}
	}
	return string(b)
}

var eventTypes = map[wire.EventType]string{
	wire.EventNone: "None", wire.NodeCreated: "NodeCreated", wire.NodeDeleted: "NodeDeleted", wire.NodeDataChanged: "NodeDataChanged",
	wire.NodeChildrenChanged: "NodeChildrenChanged", wire.DataWatchRemoved: "DataWatchRemoved", wire.ChildWatchRemoved: "ChildWatchRemoved",
	wire.PersistentWatchRemoved: "PersistentWatchRemoved",
}

var states = map[wire.State]string{
	wire.StateDisconnected: "Disconnected", wire.StateSyncConnected: "SyncConnected", wire.StateAuthFailed: "AuthFailed",
	wire.StateConnectedReadOnly: "ConnectedReadOnly", wire.StateSASLAuthenticated: "SaslAuthenticated", wire.StateClosed: "Closed",
	wire.StateExpired: "Expired",
}

// event prints an event.
func (s *shell) event(e client.Event) {
	if !s.printWatches.Load() {
		return
	}
	path := e.Path
	if e.Type == wire.EventNone {
		path = "null"
	}
	s.printf("\nWATCHER::\n\nWatchedEvent state:%s type:%s path:%s\n", states[e.State], eventTypes[e.Type], path)
}

// sentences are zkCli's texts for codes. It prints all other codes as KeeperErrorCode.
var sentences = map[wire.Code]string{
	wire.NoNode:                  "Node does not exist: ",
	wire.NoChildrenForEphemerals: "Ephemerals cannot have children: ",
	wire.NodeExists:              "Node already exists: ",
	wire.NotEmpty:                "Node not empty: ",
	wire.NotReadOnly:             "Not a read-only call: ",
	wire.InvalidACL:              "Acl is not valid : ",
	wire.NoAuth:                  "Insufficient permission : ",
	wire.BadArguments:            "Arguments are not valid : ",
	wire.BadVersion:              "version No is not valid : ",
	wire.QuotaExceeded:           "Quota has exceeded : ",
}

// describe returns the text of an error in zkCli's words. The cause of a lost connection has a line
// of its own.
func describe(err error) string {
	e, ok := err.(*client.Error)
	switch {
	case !ok:
		return err.Error()
	case sentences[e.Code] != "":
		return sentences[e.Code] + e.Path
	case e.Code == wire.ReconfigInProgress:
		return "Another reconfiguration is in progress -- concurrent reconfigs not supported (yet)"
	case e.Code == wire.NewConfigNoQuorum:
		return "No quorum of new config is connected and up-to-date with the leader of last commmitted config - try invoking reconfiguration " +
			"after new servers are connected and synced"
	case e.Cause != nil:
		return e.Error() + "\nCause: " + e.Cause.Error()
	}
	return e.Error()
}
