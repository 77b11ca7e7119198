package campaign

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/election"
	"github.com/vivarium-go/vivarium/embed/lock"
)

// errDied says that a member's process ended before it answered.
var errDied = errors.New("the process died before it answered")

// A request asks a member's process for one call.
type Request struct {
	say func(r Reply, notice bool) // in the member: answers it

	Call  call
	Start *start `json:",omitempty"`
	// open: the member's run, without which nothing is opened; mend: the next run
	Run     int            `json:",omitempty"`
	Session string         `json:",omitempty"` // names a session of the process
	Path    string         `json:",omitempty"`
	Data    string         `json:",omitempty"`
	Mode    int            `json:",omitempty"`
	Version int32          `json:",omitempty"`
	Czxid   embed.Zxid     `json:",omitempty"` // break
	Count   int            `json:",omitempty"`
	TTL     time.Duration  `json:",omitempty"`
	Hold    asked          `json:",omitzero"`  // section, lead, acquire
	Timeout time.Duration  `json:",omitempty"` // of the session
	Remote  bool           `json:",omitempty"` // open: over a connection to a gateway
	Within  time.Duration  `json:",omitempty"` // limits the call; zero means the node's own limit
	Length  time.Duration  `json:",omitempty"` // how long a section, a watch, a jump or a mend lasts
	To      embed.MemberID `json:",omitempty"`
	// recover: the voters that are lost
	Lost  []embed.MemberID `json:",omitempty"`
	Shard int              `json:",omitempty"`
	Link  link             `json:",omitzero"`
	Disk  diskFault        `json:",omitzero"`
	Full  bool             `json:",omitempty"` // walk: return the tree, not only the digest
}

// A start is the part of embed.Config that the campaign sets, and the links that are already
// broken.
type start struct {
	Home
	Run       int // number of the member's run
	ID        embed.MemberID
	Shards    int
	HoldLevel int64 `json:",omitempty"`
	Next      bool  `json:",omitempty"` // as in Upgrade
	Voters    int   `json:",omitempty"`
	Links     map[embed.MemberID]link
}

// A link is embedtest.Link as JSON.
type link struct {
	Cut   bool          `json:",omitempty"`
	Delay time.Duration `json:",omitempty"`
	Loss  float64       `json:",omitempty"`
}

// A diskFault is embedtest.Disk as JSON.
type diskFault struct {
	Errno int           `json:",omitempty"`
	On    int           `json:",omitempty"` // embedtest.DiskCalls: which calls fail
	After int           `json:",omitempty"`
	Delay time.Duration `json:",omitempty"`
}

type call string

const (
	callExpired  call = "expired"  // report every session that the log expires, for ever
	callRecover  call = "recover"  // make the member the only one; its node does not run
	callStart    call = "start"    // start the node
	callReady    call = "ready"    // wait until the node is ready
	callStatus   call = "status"   // who leads
	callShutdown call = "shutdown" // close the node in an orderly way
	callTransfer call = "transfer leadership"
	callRest     call = "rest"    // bring every long call to its end
	callStacks   call = "stacks"  // write the stacks of all goroutines to the log
	callLink     call = "link"    // break or mend the connection from this member to another
	callDisk     call = "disk"    // break the disk
	callMend     call = "mend"    // mend the disk, and start the node again if it has failed
	callWall     call = "wall"    // set the wall clock off by Length
	callSleep    call = "sleep"   // pretend that the machine slept for Length
	callFreeze   call = "freeze"  // stop the clock of durations, or let it go on if Count is zero
	callOpen     call = "open"    // open a session
	callClose    call = "close"   // close a session
	callMembers  call = "members" // list the members
	callRemove   call = "remove member"
	callLeave    call = "leave" // leave the ensemble
	callCreate   call = "create"
	callSet      call = "set"
	callGet      call = "get"
	callDelete   call = "delete"
	callBreak    call = "break" // delete the znode that was created at Czxid
	callSyncGet  call = "sync get"
	callPay      call = "pay"     // a transfer between accounts
	callStorm    call = "storm"   // set a znode many times at once, and arm watches meanwhile
	callBulk     call = "bulk"    // fill the log
	callSection  call = "section" // acquire a lock, ask the hold for a while, release it
	callLead     call = "lead"    // campaign, ask the leadership for a while, resign
	callAcquire  call = "acquire" // acquire a lock or lead, and give it up at once
	callBalance  call = "balance" // share elections with the other members
	callResize   call = "resize"  // set the number of permits to Data
	callRevoke   call = "revoke"  // ask the holder of a lock to give it up
	callObserve  call = "observe" // follow an election
	callWatch    call = "watch"   // arm a watch and report its stream for a while
	callAdd      call = "add"     // one to a counter
	callUpdate   call = "update"  // a value that counts
	callSwap     call = "swap"    // a value for Data
	callIDs      call = "ids"     // take Count ids of a sequence
	callWorker   call = "worker"  // take a worker number, and use it for a while
	callReserve  call = "reserve" // a name for a while
	callPut      call = "put"     // a task into a queue
	callWork     call = "work"    // claim a task, and finish it or give it back
	callDrain    call = "drain"   // finish the tasks that are left
	callJobs     call = "jobs"    // run jobs on schedule
	callOnce     call = "once"    // do something once
	callParts    call = "parts"   // own parts of a set for a while
	callJoin     call = "join"    // announce a member for a while
	callFollow   call = "follow"  // apply the values of a rollout for a while
	callRollOut  call = "roll out"
	callView     call = "view"     // open a view and report its changes for a while
	callEnter    call = "enter"    // a double barrier, and leave it
	callGate     call = "gate"     // wait at a gate
	callShut     call = "shut"     // a gate
	callUnlock   call = "unlock"   // a gate
	callDone     call = "done"     // with a name of a countdown
	callWait     call = "wait"     // for the end of a countdown
	callRegister call = "register" // an instance of a service, and update it for a while
	callRoster   call = "roster"   // follow a group or a service for a while
	callGather   call = "gather"   // be found by all members, each in every way
	callList     call = "list"     // a znode's children, after a Sync
	callWalk     call = "walk"     // the whole tree, after a Sync
)

// A reply answers one request.
type Reply struct {
	Outcome outcome         `json:",omitempty"`
	Error   string          `json:",omitempty"`
	End     string          `json:",omitempty"` // why the session has ended, if it has
	Path    string          `json:",omitempty"`
	Data    string          `json:",omitempty"`
	Stat    embed.Stat      `json:",omitzero"`
	Zxid    embed.Zxid      `json:",omitempty"`
	Session embed.SessionID `json:",omitempty"`
	Status  embed.Status    `json:",omitzero"`
	Failed  string          `json:",omitempty"` // status, mend: why the node had failed
	Joining string          `json:",omitempty"` // status: what a node waits for that has yet to join
	Token   lock.Token      `json:",omitzero"`
	// when it happened, on the clock that all processes share
	At      time.Duration `json:",omitempty"`
	Wrong   string        `json:",omitempty"` // a broken promise that the member itself saw
	Events  []event       `json:",omitempty"`
	Tree    []entry       `json:",omitempty"` // walk
	Names   []string      `json:",omitempty"` // list
	Digests []string      `json:",omitempty"` // walk: of each shard
	// watch: what reads showed before it was armed, by shard
	Since []embed.Zxid `json:",omitempty"`
	Zxids []embed.Zxid `json:",omitempty"` // watch, walk: what reads show, by shard
	Hold  *holding     `json:",omitempty"` // section, lead: what the holder has seen so far
	Deed  *deed        `json:",omitempty"`
	Sets  []stormSet   `json:",omitempty"` // storm
	Tapes []tape       `json:",omitempty"` // storm
	// members: all that the node knows, and who votes by the Raft of each shard
	Members []fellow           `json:",omitempty"`
	Voters  [][]embed.MemberID `json:",omitempty"`
}

// A fellow is embed.Member as JSON.
type fellow struct {
	ID      embed.MemberID
	Name    string
	Votes   int // on so many shards
	Out     bool
	Leaving string `json:",omitempty"`
}

// An event is embed.Event as JSON.
type event struct {
	Type embed.EventType
	Path string
	Zxid embed.Zxid
}

// An entry is one znode as a session sees it.
type entry struct {
	Path string
	Data string
	Stat embed.Stat
}

// A holdKind is a kind of lock or leadership.
type holdKind string

const (
	kindMutex  holdKind = "mutex"
	kindKept   holdKind = "kept mutex" // with Options.Keep
	kindMulti  holdKind = "multi"
	kindRead   holdKind = "read lock"
	kindWrite  holdKind = "write lock"
	kindPermit holdKind = "permits"
	kindLeader holdKind = "leadership"
	kindLatch  holdKind = "latch"
	kindShared holdKind = "balanced leadership"
	kindKey    holdKind = "key" // of lock.Keys
	kindWorker holdKind = "worker number"
	kindName   holdKind = "reserved name"
	kindTask   holdKind = "task"
	kindTick   holdKind = "tick of a job"
	kindOnce   holdKind = "once"
	kindPart   holdKind = "part"
	kindHere   holdKind = "announcement"
	kindValue  holdKind = "applied value" // of a rollout; its token is the value's Mzxid
)

// asked describes the hold of request.Path that a caller wants.
type asked struct {
	Kind    holdKind
	Also    string `json:",omitempty"` // the second path of a multi
	Permits int    `json:",omitempty"`
	Try     bool   `json:",omitempty"` // at once or not at all
	// after use, upgrade a read lock or downgrade a write lock
	Convert  bool          `json:",omitempty"`
	Delay    time.Duration `json:",omitempty"` // lock-delay
	Identity string        `json:",omitempty"` // may come back during the delay
	Do       bool          `json:",omitempty"` // by lock.Do
	Bare     bool          `json:",omitempty"` // write nothing that the lock protects
	Heed     bool          `json:",omitempty"` // hold until somebody asks for it
	Priority int           `json:",omitempty"` // of a candidate
	Withdraw time.Duration `json:",omitempty"` // a candidate withdraws after this time
	Then     parting       `json:",omitempty"`
}

// A parting is how a leader makes room.
type parting string

const (
	thenResign   parting = ""
	thenTransfer parting = "transfer"
	thenRequeue  parting = "requeue"
)

// paths returns the paths of the requested hold.
func (q *Request) paths() []string {
	if q.Hold.Also == "" {
		return []string{q.Path}
	}
	return []string{q.Path, q.Hold.Also}
}

// A holding is one hold or one leadership, as far as its holder's process has reported it.
type holding struct {
	Number  int    // among the holds of its request
	Name    string `json:",omitempty"` // below the request's path
	Kind    holdKind
	Permits int `json:",omitempty"`
	Token   lock.Token
	Asked   time.Duration // it was requested then or later
	From    time.Duration // it existed: Lock had returned
	Until   time.Duration // when the last question was asked that was answered "still held"
	Given   bool          // it is about to be given up
	Lost    string        // its error at the end, if it was lost
	Delay   time.Duration `json:",omitempty"` // how long it stays taken after a loss
	// Identity may come back during the delay.
	Identity string `json:",omitempty"`
	// Withdrawn is when its candidate's Withdraw had returned.
	Withdrawn time.Duration `json:",omitempty"`
	// Guarded are the writes that depended on it.
	Guarded []guarded
}

// A deed is something that a recipe did in the middle of a call.
type deed struct {
	Kind    deedKind
	Path    string     `json:",omitempty"` // of the recipe
	Key     string     `json:",omitempty"` // the id; the time; a task's data; a tick's job and time
	Token   lock.Token `json:",omitzero"`
	Outcome outcome    `json:",omitempty"`
}

// A deedKind is a kind of deed.
type deedKind string

const (
	deedID    deedKind = "id"    // was given out: Key
	deedTime  deedKind = "time"  // Key, in milliseconds, was used with the worker number of Path
	deedBegin deedKind = "begin" // of a task or a tick, for the first or another time
	deedDone  deedKind = "done"  // a task or a tick, in one transaction with an entry in the ledger of deeds
)

// A guarded write depends on a hold in the same transaction.
type guarded struct {
	Outcome outcome
	Data    string
	Mzxid   embed.Zxid `json:",omitempty"`
	Ended   bool       `json:",omitempty"` // the hold had ended before the write was issued
}

// A stormSet is one set of a storm.
type stormSet struct {
	Outcome outcome
	Stat    embed.Stat `json:",omitzero"`
}

// An outcome is what a caller may believe after a call.
type outcome string

const (
	applied    outcome = "applied"
	noNode     outcome = "no node" // answers of the tree: nothing changed
	nodeExists outcome = "node exists"
	badVersion outcome = "bad version"
	refused    outcome = "refused"     // every other refusal
	notApplied outcome = "not applied" // certainly not applied, and it never will be
	unknown    outcome = "unknown"
	ended      outcome = "ended" // a watch, with its reason
)

// outcomes maps the errors of a write to outcomes, as the documentation defines them. The first
// match counts.
var outcomes = slices.Concat([]meaning{
	{election.ErrNotTransferred, refused}, // whatever the reason
	{embed.ErrUnknownOutcome, unknown},
}, recipeErrors, []meaning{
	{embed.ErrNoNode, noNode},
	{embed.ErrNodeExists, nodeExists},
	{embed.ErrBadVersion, badVersion},
	{embed.ErrNotEmpty, refused},
	{embed.ErrNotHeld, refused},
	{embed.ErrDeleted, refused}, // by breakStep
	{errNotFree, refused},
	{lock.ErrUpgrade, refused},
	{lock.ErrTooManyPermits, refused},
	{lock.ErrLimitDiffers, refused},
	{lock.ErrNoLimit, refused},
	{embed.ErrWatchOverflow, ended},
	{embed.ErrWatchGap, ended},
	{embed.ErrUnavailable, notApplied},
	{embed.ErrSessionExpired, notApplied},
	{embed.ErrSessionClosed, notApplied},
	{embed.ErrClosed, notApplied},
	{embed.ErrFailed, notApplied},
	{context.Canceled, notApplied},
	{context.DeadlineExceeded, notApplied},
})

// A meaning says what an error means.
type meaning struct {
	err  error
	mean outcome
}

// outcomeOf returns what an error means. An undocumented error is an outcome of its own, and a
// violation.
func outcomeOf(err error) outcome {
	if err == nil {
		return applied
	}
	for _, o := range outcomes {
		if errors.Is(err, o.err) {
			return o.mean
		}
	}
	return outcome(fmt.Sprintf("undocumented error: %v", err))
}

// documented reports whether an outcome is one of the constants above.
func (o outcome) documented() bool {
	switch o {
	case applied, noNode, nodeExists, badVersion, refused, notApplied, unknown, ended:
		return true
	}
	return false
}
