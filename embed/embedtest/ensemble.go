package embedtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/internal/inside"
	"github.com/vivarium-go/vivarium/engine"
	"github.com/vivarium-go/vivarium/internal/files"
	"github.com/vivarium-go/vivarium/internal/files/memory"
	"github.com/vivarium-go/vivarium/internal/testkit/membersflag"
	"github.com/vivarium-go/vivarium/internal/testkit/sessionsflag"
	"github.com/vivarium-go/vivarium/internal/testkit/shardsflag"
	"github.com/vivarium-go/vivarium/replication"
	"github.com/vivarium-go/vivarium/replication/transport"
	"github.com/vivarium-go/vivarium/replication/transport/transporttest"
)

// DefaultTick is the tick of a test's ensemble. With it, elections take 100 to 240 ms and the least
// session timeout is 720 ms.
const DefaultTick = 10 * time.Millisecond

// minPatience and ticksOfPatience bound the waits of this package, see Ensemble.patience.
const (
	minPatience     = 2 * time.Minute
	ticksOfPatience = 1000
)

// Options are the settings of an ensemble. The zero value is usable.
type Options struct {
	// Dir holds the members' directories. Empty means memory inside a bubble of testing/synctest,
	// and a directory of the test elsewhere.
	Dir string
	// Config may change a member's Config before each start. Dir, ID, Members and Tick are set.
	Config func(c *embed.Config)
	// KeepEntries is how many entries of its log a shard keeps at a Snapshot for members that lag.
	// Zero means 64 MiB of them. A member that lags further installs a snapshot.
	KeepEntries uint64
	// EndPortion is how many sessions and znodes one transaction ends together, at most twice as
	// many. Zero means 10,000. Sessions that own more, and those that expire together, end in
	// several transactions.
	EndPortion int
	// Seed decides what survives a PowerCut of what was not synced.
	Seed uint64
	// Logger gets what the members log; nil means that nothing is logged.
	Logger *slog.Logger
	// Stopped means that New starts no member. The test calls Start for each.
	Stopped bool
}

// An Ensemble is several members in one process. Its methods may be called by any number of
// goroutines.
//
// The methods know a member by its place, which keeps its links and its directory. The places of the
// founders are their ids. A member that joins gets its id from the ensemble: see Ensemble.ID.
//
// A method fails the test if it cannot do what it is asked to. A method that returns no error then
// calls Fatal, which package testing allows only on the test's own goroutine.
type Ensemble struct {
	t      testing.TB
	bubble bool // it was made in a bubble of testing/synctest
	o      Options
	dir    string
	mesh   *transporttest.Mesh
	found  []embed.MemberID // the places of the founders
	churn  *churn           // nil: nobody comes and goes by itself

	mu       sync.Mutex
	ids      []embed.MemberID // all places
	faults   map[embed.MemberID]*Faults
	ports    map[embed.MemberID]int            // of the addresses at which members are reached now
	recycled map[embed.MemberID]string         // the address of another one that a member has taken
	disks    map[embed.MemberID]*memory.System // nil if the members use real directories
	chance   *rand.Rand                        // decides what a power cut leaves
	tick     time.Duration                     // the longest tick of a member
	running  map[embed.MemberID]*embed.Node
	taken    map[embed.MemberID]bool // it runs, or is being started or stopped
	paused   map[embed.MemberID]bool
	doors    map[*embed.Node]embed.Opener // with this module's flag -sessions
	shut     []func()                     // what the openers hold
}

// New starts an ensemble of members 1 to n and waits until all are ready, unless Options.Stopped is
// set. The ensemble is closed when the test ends.
func New(t testing.TB, n int, o Options) *Ensemble {
	t.Helper()
	e := &Ensemble{t: t, bubble: inBubble(), o: o, dir: o.Dir, mesh: transporttest.NewMesh(), faults: make(map[embed.MemberID]*Faults),
		running: make(map[embed.MemberID]*embed.Node), taken: make(map[embed.MemberID]bool), paused: make(map[embed.MemberID]bool),
		ports: make(map[embed.MemberID]int), recycled: make(map[embed.MemberID]string),
		doors:  make(map[*embed.Node]embed.Opener),
		chance: rand.New(rand.NewPCG(o.Seed, 0))}
	switch {
	case e.dir == "" && e.bubble:
		// A real disk would take real time, in which the bubble's stands still.
		e.dir, e.disks = string(filepath.Separator), make(map[embed.MemberID]*memory.System)
	case e.dir == "":
		e.dir = t.TempDir()
	}
	if e.o.Logger == nil {
		e.o.Logger = slog.New(slog.DiscardHandler)
	}
	for range n {
		e.AddPlace()
	}
	e.found = slices.Clone(e.ids)
	if membersflag.Churn && !o.Stopped && n > 1 && n%2 == 1 {
		e.churn = &churn{e: e}
	}
	t.Cleanup(e.close)
	if o.Stopped {
		return e
	}
	for _, id := range e.ids {
		e.Start(id)
	}
	for _, id := range e.ids {
		e.Ready(id)
	}
	if e.churn != nil {
		e.churn.begin()
	}
	return e
}

// AddPlace adds the place of a new member that does not run yet. Start starts it; Join does both.
func (e *Ensemble) AddPlace() embed.MemberID {
	e.mu.Lock()
	defer e.mu.Unlock()
	id := embed.MemberID(len(e.ids) + 1)
	e.ids = append(e.ids, id)
	e.faults[id] = NewFaults()
	e.ports[id] = 1
	if e.disks != nil {
		e.disks[id] = memory.New()
	}
	return id
}

func (e *Ensemble) close() {
	if e.churn != nil {
		e.churn.end()
	}
	for _, shut := range e.shut {
		shut()
	}
	for _, id := range e.Places() {
		e.Resume(id)
		if n := e.remove(id); n != nil {
			if err := n.Close(); err != nil {
				e.t.Errorf("member %d: %v%s", id, err, inTheWay(err))
			}
		}
	}
}

// inTheWay returns the stacks of all goroutines if one of them kept a member from stopping.
func inTheWay(err error) []byte {
	if !errors.Is(err, replication.ErrStillRunning) {
		return nil
	}
	stacks := append([]byte{'\n'}, make([]byte, 1<<22)...)
	return stacks[:1+runtime.Stack(stacks[1:], true)]
}

// Members returns the places of all members that are there for the test to use. See Places.
func (e *Ensemble) Members() []embed.MemberID {
	if e.churn != nil {
		return slices.Clone(e.found)
	}
	return e.Places()
}

// Places returns the places of all members. With this module's flag -members some come and go by
// themselves, and Members leaves these out: they are there only to be cut off.
func (e *Ensemble) Places() []embed.MemberID {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.ids)
}

// Dir returns the directory of a member. In memory nobody but the member can read it.
func (e *Ensemble) Dir(id embed.MemberID) string {
	return filepath.Join(e.dir, fmt.Sprintf("member-%d", id))
}

// Start starts a member that is not running. It does not wait until the member is ready.
func (e *Ensemble) Start(id embed.MemberID) *embed.Node {
	e.t.Helper()
	n, err := e.TryStart(id)
	if err != nil {
		e.t.Fatalf("member %d: %v", id, err)
	}
	return n
}

// TryStart is Start for a test that expects an error.
func (e *Ensemble) TryStart(id embed.MemberID) (*embed.Node, error) {
	faults := e.faultsOf(id)
	if faults == nil {
		return nil, fmt.Errorf("there is no member %d", id)
	}
	cfg := embed.Config{Dir: e.Dir(id), Shards: shardsflag.N, Tick: DefaultTick, Logger: e.o.Logger}
	e.place(&cfg, id)
	if e.o.Config != nil {
		e.o.Config(&cfg)
	}
	seams := seamsOf(cfg)
	seams.Keep = cmp.Or(seams.Keep, e.o.KeepEntries)
	seams.Portion = e.o.EndPortion
	seams.Network = func(tcp transport.Network) transport.Network {
		return transport.Over(tcp, placed{e.mesh.Network(uint64(id)), e})
	}
	if e.bubble {
		seams.Listen = func(string, string) (net.Listener, error) { return e.listen(id) }
	}
	disk, free := e.take(id, cfg.Tick)
	if !free {
		return nil, fmt.Errorf("member %d is running, or is being started or stopped", id)
	}
	if disk != nil {
		seams.Files = disk
	}
	// A machine that stands still for some seconds must not fail a test that stops a member.
	seams.Close = cmp.Or(seams.Close, e.patience())
	cfg.Inside = &seams
	// Not under mu: a disk may be so slow that others must be able to mend it meanwhile.
	n, err := Start(cfg, faults)
	e.mu.Lock()
	defer e.mu.Unlock()
	if err != nil {
		e.taken[id] = false
		return nil, err
	}
	e.running[id] = n
	return n, nil
}

// listen opens the door of a member. The gateway of its last run closes it only after the node.
func (e *Ensemble) listen(id embed.MemberID) (l net.Listener, err error) {
	for range 100 {
		if l, err = e.mesh.Network(door(id)).Listen(); err == nil {
			break
		}
		<-time.After(10 * time.Millisecond)
	}
	return l, err
}

// door returns the place of a member's gateway in the mesh.
func door(id embed.MemberID) uint64 { return 1<<63 | uint64(id) }

// Dial connects to the gateway of a member in a bubble. There gateway.Start opens no port, whatever
// its Config says, so that virtual time can pass while a client waits.
func (e *Ensemble) Dial(ctx context.Context, id embed.MemberID) (net.Conn, error) {
	return e.mesh.Network(1<<63).Dial(ctx, transport.Target{Member: door(id)})
}

// take reports whether a member may be started by its caller, and by nobody else. It returns the
// member's disk, or nil for the real one.
func (e *Ensemble) take(id embed.MemberID, tick time.Duration) (disk *memory.System, free bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.taken[id] {
		return nil, false
	}
	e.taken[id] = true
	e.tick = max(e.tick, tick)
	return e.disks[id], true
}

// remove removes a member if it is running. Its caller stops it, and releases it then.
func (e *Ensemble) remove(id embed.MemberID) *embed.Node {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := e.running[id]
	delete(e.running, id)
	return n
}

// release lets a member be started again.
func (e *Ensemble) release(id embed.MemberID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.taken[id] = false
}

// mustRemove removes a member that must be running. Of several callers one gets it.
func (e *Ensemble) mustRemove(id embed.MemberID) *embed.Node {
	e.t.Helper()
	n := e.remove(id)
	if n == nil {
		e.t.Fatalf("member %d is not running", id)
	}
	return n
}

// Node returns a running member.
func (e *Ensemble) Node(id embed.MemberID) *embed.Node {
	e.t.Helper()
	if !e.bubble && inBubble() {
		e.t.Fatalf("a bubble of testing/synctest uses an ensemble that was made outside it, in real time: call New inside the bubble")
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	n := e.running[id]
	if n == nil {
		e.t.Fatalf("member %d is not running", id)
	}
	return n
}

// inBubble reports whether its caller runs in a bubble. Package synctest does not tell, but the
// times of a bubble have no monotonic reading, which Round(0) would take away. The year 2000, with
// which a bubble begins, is no such mark: a bubble may last for decades, and the clock of a machine
// may be wrong.
func inBubble() bool {
	now := time.Now()
	return now == now.Round(0)
}

// engineOf returns the engine of a node.
func engineOf(n *embed.Node) *engine.Engine { return (*inside.Node)(n).Parts().Engine }

// Ready waits until a member is ready.
func (e *Ensemble) Ready(id embed.MemberID) {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), e.patience())
	defer cancel()
	if err := e.Node(id).Ready(ctx); err != nil {
		e.t.Fatalf("member %d: %v", id, err)
	}
}

// Session opens a session on a member; it is closed when the test ends.
func (e *Ensemble) Session(id embed.MemberID, o embed.SessionOptions) *embed.Session {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), e.patience())
	defer cancel()
	s, err := e.Opener(id).NewSession(ctx, o)
	if err != nil {
		e.t.Fatalf("member %d: %v", id, err)
	}
	return s
}

// Opener returns what opens sessions on a member: its node. Recipes such as lock.Do take it.
func (e *Ensemble) Opener(id embed.MemberID) embed.Opener {
	e.t.Helper()
	n := e.Node(id)
	if sessionsflag.Open == nil {
		return n
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if from := e.doors[n]; from != nil {
		return from
	}
	var dial func(ctx context.Context) (net.Conn, error)
	if e.bubble {
		dial = func(ctx context.Context) (net.Conn, error) { return e.Dial(ctx, id) }
	}
	from, shut, err := sessionsflag.Open(n, dial)
	if err != nil {
		e.t.Fatalf("member %d: %v", id, err)
	}
	e.doors[n], e.shut = from, append(e.shut, shut)
	return from
}

// Stop shuts a member down: it closes its sessions and transfers its leaderships.
func (e *Ensemble) Stop(id embed.MemberID) {
	e.t.Helper()
	n := e.mustRemove(id)
	defer e.release(id)
	ctx, cancel := context.WithTimeout(context.Background(), e.patience())
	defer cancel()
	if err := n.Shutdown(ctx); err != nil {
		e.t.Fatalf("member %d: %v%s", id, err, inTheWay(err))
	}
}

// Kill ends a member as a crash of its process would. From this moment nothing reaches its disk or
// the other members, and nobody is told.
func (e *Ensemble) Kill(id embed.MemberID) {
	e.t.Helper()
	if err := e.TryKill(id); err != nil {
		e.t.Fatalf("member %d: %v%s", id, err, inTheWay(err))
	}
}

// TryKill is Kill for a member that may leave something behind. It returns what Close returns.
func (e *Ensemble) TryKill(id embed.MemberID) error {
	e.t.Helper()
	n := e.mustRemove(id)
	defer e.release(id)
	engineOf(n).Kill()
	return e.closeKilled(id, n)
}

func (e *Ensemble) closeKilled(id embed.MemberID, n *embed.Node) error {
	e.Resume(id) // a call that hangs would delay Close
	return n.Close()
}

// PowerCut ends members as a power cut of their machines would, all at one moment. Beyond what Kill
// does, their disks lose what was not synced. By chance, some of it survives: a name, a page of a
// file, or a part of a page. Members that are not running lose it too. Those that are being started
// or stopped must not be among them.
//
// PowerCut needs disks in memory: it works inside a bubble of testing/synctest, if Options.Dir is
// empty.
func (e *Ensemble) PowerCut(ids ...embed.MemberID) {
	e.t.Helper()
	if e.disks == nil {
		e.t.Fatalf("a power cut needs disks in memory: call New inside a bubble of testing/synctest, with an empty Options.Dir")
	}
	running := e.takeForCut(ids)
	for _, n := range running {
		engineOf(n).Kill()
	}
	for id, n := range running {
		if err := e.closeKilled(id, n); err != nil {
			e.t.Fatalf("member %d: %v%s", id, err, inTheWay(err))
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, id := range ids {
		e.disks[id] = e.disks[id].PowerCut(memory.AnythingLasts, e.chance)
		e.taken[id] = false
	}
}

// takeForCut takes members for a power cut and returns those that run. Nobody else may have a
// member that does not run: it would go on with a disk that nobody else sees.
func (e *Ensemble) takeForCut(ids []embed.MemberID) map[embed.MemberID]*embed.Node {
	e.t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, id := range ids {
		switch {
		case e.faults[id] == nil:
			e.t.Fatalf("there is no member %d", id)
		case e.taken[id] && e.running[id] == nil:
			e.t.Fatalf("member %d is being started or stopped: its power cannot be cut meanwhile", id)
		}
	}
	running := make(map[embed.MemberID]*embed.Node)
	for _, id := range ids {
		if n := e.running[id]; n != nil {
			running[id] = n
			delete(e.running, id)
		}
		e.taken[id] = true
	}
	return running
}

// Rename gives a file or directory of a member another name in the same directory, and syncs that
// directory, as somebody at the machine might. Both names are full paths; see Dir.
func (e *Ensemble) Rename(id embed.MemberID, from, to string) error {
	disk := e.disk(id)
	if err := disk.Rename(from, to); err != nil {
		return err
	}
	dir, err := disk.OpenFile(filepath.Dir(to), os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// disk returns what a member's directory is on.
func (e *Ensemble) disk(id embed.MemberID) files.System {
	e.mu.Lock()
	defer e.mu.Unlock()
	if d := e.disks[id]; d != nil {
		return d
	}
	return files.OS
}

// Files returns the size of each file in a member's directory, by its full path. The member may be
// running; files that come or go meanwhile may be missing.
func (e *Ensemble) Files(id embed.MemberID) (map[string]int64, error) {
	disk, sizes := e.disk(id), make(map[string]int64)
	var visit func(name string) error
	visit = func(name string) error {
		info, err := disk.Stat(name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case !info.IsDir():
			sizes[name] = info.Size()
			return nil
		}
		dir, err := disk.OpenFile(name, os.O_RDONLY, 0)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		} else if err != nil {
			return err
		}
		names, err := dir.Readdirnames(-1)
		for _, below := range names {
			err = errors.Join(err, visit(filepath.Join(name, below)))
		}
		return errors.Join(err, dir.Close())
	}
	return sizes, visit(e.Dir(id))
}

// Restart starts a member again after Stop, Kill or PowerCut, and waits until it is ready.
func (e *Ensemble) Restart(id embed.MemberID) *embed.Node {
	e.t.Helper()
	n := e.Start(id)
	e.Ready(id)
	return n
}

// Faults returns what breaks the things that a member stands on.
func (e *Ensemble) Faults(id embed.MemberID) *Faults {
	e.t.Helper()
	f := e.faultsOf(id)
	if f == nil {
		e.t.Fatalf("there is no member %d", id)
	}
	return f
}

func (e *Ensemble) faultsOf(id embed.MemberID) *Faults {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.faults[id]
}

// Cut cuts the link between two members in both directions.
func (e *Ensemble) Cut(a, b embed.MemberID) { e.setLinks(a, b, Link{Cut: true}) }

// Heal makes the link between two members whole, whatever is wrong with it.
func (e *Ensemble) Heal(a, b embed.MemberID) { e.setLinks(a, b, Link{}) }

func (e *Ensemble) setLinks(a, b embed.MemberID, l Link) {
	e.t.Helper()
	e.Faults(a).SetLink(b, l)
	e.Faults(b).SetLink(a, l)
}

// Isolate cuts a member off from all others.
func (e *Ensemble) Isolate(id embed.MemberID) {
	e.t.Helper()
	for _, other := range e.Places() {
		if other != id {
			e.Cut(id, other)
		}
	}
}

// HealAll makes all links whole.
func (e *Ensemble) HealAll() {
	for _, a := range e.Places() {
		for _, b := range e.Places() {
			e.Faults(a).SetLink(b, Link{})
		}
	}
}

// Pause makes a member stand still towards the world, as if its process were stopped. Everything
// that it sends, or that others send to it, is kept until Resume, and calls that change its disk
// hang. Resume delivers what the sender has not given up by then; a sender gives up after some two
// seconds.
//
// Unlike in a stopped process, the code inside goes on: timers run, and the member notices that
// nobody answers. To see what a member does that has not noticed, stop a process.
func (e *Ensemble) Pause(id embed.MemberID) {
	e.t.Helper()
	e.setPaused(id, true)
}

// Resume ends a Pause.
func (e *Ensemble) Resume(id embed.MemberID) {
	e.t.Helper()
	e.setPaused(id, false)
}

func (e *Ensemble) setPaused(id embed.MemberID, paused bool) {
	e.t.Helper()
	f := e.Faults(id)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.paused[id] = paused
	f.pause(paused)
	for _, other := range e.ids {
		if other != id {
			hold := paused || e.paused[other]
			f.links.Hold(uint64(other), hold)
			e.faults[other].links.Hold(uint64(id), hold)
		}
	}
}

// Leader waits until most members of the ensemble agree on a running leader of the first shard. It
// returns that leader.
func (e *Ensemble) Leader() embed.MemberID {
	e.t.Helper()
	var leader embed.MemberID
	e.Until("a leader", func() bool {
		leader = e.agreed(1)
		return leader != 0
	})
	return leader
}

// agreed returns the running member that a majority follows in one term of a shard, or zero.
func (e *Ensemble) agreed(shard int) embed.MemberID {
	e.mu.Lock()
	defer e.mu.Unlock()
	votes := make(map[embed.ShardStatus]int)
	for _, n := range e.running {
		s := n.Status().Shards[shard-1]
		key := embed.ShardStatus{Leader: s.Leader, Term: s.Term}
		votes[key]++
		if place := e.placeLocked(s.Leader); place != 0 && votes[key] > e.votersLocked()/2 {
			return place
		}
	}
	return 0
}

// votersLocked returns how many members of the ensemble vote: the founders, until a member has the
// table.
func (e *Ensemble) votersLocked() (n int) {
	for _, node := range e.running {
		var voters int
		for _, m := range node.Members() {
			if m.Role == embed.Voter {
				voters++
			}
		}
		n = max(n, voters)
	}
	return cmp.Or(n, len(e.found))
}

// placeLocked returns the place of a running member with an id, or zero.
func (e *Ensemble) placeLocked(id embed.MemberID) embed.MemberID {
	for place, n := range e.running {
		if id != 0 && n.Status().Member == id {
			return place
		}
	}
	return 0
}

// TransferLeadership transfers the leadership of every shard to a member and waits until it leads
// them all.
func (e *Ensemble) TransferLeadership(to embed.MemberID) {
	e.t.Helper()
	for i := range e.shards() {
		e.Until(fmt.Sprintf("member %d to lead shard %d", to, i+1), func() bool { return e.transfer(i+1, to) })
	}
}

// transfer reports whether a member leads a shard. If not, it asks for the transfer.
func (e *Ensemble) transfer(shard int, to embed.MemberID) bool {
	leader := e.agreed(shard)
	e.mu.Lock()
	n := e.running[leader] // it may have stopped meanwhile
	e.mu.Unlock()
	if n != nil && leader != to {
		// Another request may be under way. The next look asks again.
		_ = n.TransferLeadership(shard, e.ID(to))
	}
	return leader == to
}

// shards returns how many shards the running members have.
func (e *Ensemble) shards() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, n := range e.running {
		return len(n.Status().Shards)
	}
	return 0
}

// patience bounds every wait of this package: far more than a slow machine needs, and more than a
// slow tick does. A test that reaches it has failed.
func (e *Ensemble) patience() time.Duration {
	return max(minPatience, ticksOfPatience*e.longestTick())
}

func (e *Ensemble) longestTick() time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.tick
}

// Snapshot asks a member for a snapshot of each shard, which compacts the shard's log.
func (e *Ensemble) Snapshot(id embed.MemberID) error {
	e.mu.Lock()
	n := e.running[id]
	e.mu.Unlock()
	if n == nil {
		return fmt.Errorf("member %d is not running", id)
	}
	return engineOf(n).RequestSnapshot()
}

// Until waits until cond holds. If it does not, the failure says that the test waited for what.
func (e *Ensemble) Until(what string, cond func() bool) {
	e.t.Helper()
	patience := e.patience()
	deadline := time.Now().Add(patience)
	tick := time.NewTicker(max(5*time.Millisecond, e.longestTick()/2))
	defer tick.Stop()
	for !cond() {
		if time.Now().After(deadline) {
			e.t.Fatalf("waited %v for %s", patience, what)
		}
		<-tick.C
	}
}
