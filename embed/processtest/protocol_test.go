//go:build unix

package processtest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"syscall"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/lock"
	"github.com/vivarium-go/vivarium/engine/clock"
)

// A request asks a member's process for one call.
type request struct {
	Call    call
	Config  *config       `json:",omitempty"`
	Session string        `json:",omitempty"` // names a session of the process
	Hold    string        `json:",omitempty"` // names a hold of the process
	Path    string        `json:",omitempty"`
	Data    string        `json:",omitempty"`
	Mode    int           `json:",omitempty"`
	Version int32         `json:",omitempty"`
	Count   int           `json:",omitempty"`
	Timeout time.Duration `json:",omitempty"` // of the session; paused: the least pause that counts
	Within  time.Duration `json:",omitempty"` // bounds the call; zero means as the node does
	Errno   syscall.Errno `json:",omitempty"` // disk: the error of its calls; zero means that it works
}

// A config is the part of embed.Config that these tests set.
type config struct {
	Dir     string
	ID      embed.MemberID
	Members map[embed.MemberID]string
	Shards  int
	Tick    time.Duration
	Faults  bool // its disk may fail; then callSnapshot does nothing

	// Members that come and go.
	Join            []string
	Advertise, Name string
	Ephemeral       bool
	Voters          int

	TLS *embed.TLS // its files
}

type call string

const (
	callStart    call = "start"    // close the node, if there is one, and start another
	callReady    call = "ready"    // wait until the node is ready
	callFailed   call = "failed"   // wait until the node has failed, and say why
	callDisk     call = "disk"     // replace the state of the disk of a member with faults
	callStatus   call = "status"   // who leads, and who is a member
	callSnapshot call = "snapshot" // ask for a snapshot of the shard
	callShutdown call = "shutdown" // shut the node down
	callReload   call = "reload"   // read the files of certificates again
	callStacks   call = "stacks"   // write the stacks of all goroutines to the log
	callOpen     call = "open"     // open a session
	callClose    call = "close"    // close a session
	callState    call = "state"    // ask a session for its state and error
	callCreate   call = "create"
	callSet      call = "set"
	callGet      call = "get"
	callDelete   call = "delete"
	callSync     call = "sync"
	callChildren call = "children"
	callTransfer call = "transfer" // transfer a unit between accounts, see transfer
	callBurst    call = "burst"    // submit creates without waiting in between
	callSets     call = "sets"     // submit sets of one znode without waiting in between
	callWalk     call = "walk"     // the whole tree, after a Sync
	callLock     call = "lock"     // wait for a lock
	callTryLock  call = "try lock" // acquire a lock if it is free
	callSection  call = "section"  // acquire a lock, ask the hold for a while, release it
	callRelease  call = "release"  // release a lock
	callHold     call = "hold"     // ask a hold for its errors
	callPaused   call = "paused"   // wait until this process was stopped, then ask one question first
	callInsist   call = "insist"   // ask a hold without pause until it is lost
	callGuarded  call = "guarded"  // set a znode, guarded by a hold, without asking the hold first
	callWriteOn  call = "write on" // submit guarded sets without waiting until the hold is lost
)

// A reply answers one request.
type reply struct {
	Outcome outcome         `json:",omitempty"`
	Error   string          `json:",omitempty"`
	Path    string          `json:",omitempty"`
	Data    string          `json:",omitempty"`
	Stat    embed.Stat      `json:",omitzero"`
	Names   []string        `json:",omitempty"`
	Status  embed.Status    `json:",omitzero"`
	Members []embed.Member  `json:",omitempty"` // status
	Each    []outcome       `json:",omitempty"` // burst, sets, write on
	Version []int32         `json:",omitempty"` // sets, write on: the znode's version after each
	Tree    []entry         `json:",omitempty"` // walk
	Zxid    embed.Zxid      `json:",omitempty"` // walk, sync
	Session embed.SessionID `json:",omitempty"`
	Token   *lock.Token     `json:",omitempty"`
	Ticks   int64           `json:",omitempty"` // status: how often a goroutine outside the node has run
	Armed   int             `json:",omitempty"` // status: how many calls wait for a stop, or ask a hold
	Ahead   int             `json:",omitempty"` // status: how many sets of "write on" have no answer yet
	At      time.Duration   `json:",omitempty"` // when it happened, on the shared clock
	Until   time.Duration   `json:",omitempty"` // when the last question answered "still held" was asked
	Pause   time.Duration   `json:",omitempty"` // how long the process had been stopped
	Lost    string          `json:",omitempty"` // the answer of a hold's Err
	LostCtx string          `json:",omitempty"` // the answer of its Context's Err
}

// An entry is one znode as a session sees it.
type entry struct {
	Path string
	Data string
	Stat embed.Stat
}

// An outcome is what a caller may believe after a call.
type outcome string

const (
	applied    outcome = "applied"
	refused    outcome = "refused"     // an answer of the tree: nothing changed
	notApplied outcome = "not applied" // certainly not applied, now or later
	unknown    outcome = "unknown"
)

// outcomeOf interprets the error of a write as the documentation says.
func outcomeOf(err error) outcome {
	answers := []error{embed.ErrNoNode, embed.ErrNodeExists, embed.ErrBadVersion, embed.ErrNotEmpty, embed.ErrNoChildrenForEphemerals,
		embed.ErrNotHeld}
	certain := []error{embed.ErrUnavailable, embed.ErrSessionExpired, embed.ErrSessionClosed, embed.ErrClosed, embed.ErrFailed,
		context.Canceled, context.DeadlineExceeded}
	is := func(list []error) bool {
		for _, e := range list {
			if errors.Is(err, e) {
				return true
			}
		}
		return false
	}
	switch {
	case err == nil:
		return applied
	case errors.Is(err, embed.ErrUnknownOutcome):
		return unknown
	case is(answers):
		return refused
	case is(certain):
		return notApplied
	default:
		return outcome(fmt.Sprintf("undocumented error: %v", err))
	}
}

// now returns the time of a clock that all processes of the machine share.
func now() time.Duration {
	if runtime.GOOS == "linux" {
		return clock.System().Boot() // nobody can set it
	}
	return time.Duration(time.Now().UnixNano())
}
