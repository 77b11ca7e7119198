package gateway

import (
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/engine"
	"github.com/vivarium-go/vivarium/internal/wire"
	"github.com/vivarium-go/vivarium/tree"
)

// A word is one of ZooKeeper's four-letter words. A connection that sends one gets its text and
// ends.
type word struct {
	text   func(g *Gateway, b *strings.Builder) // nil if it is never answered here
	always bool                                 // as in ZooKeeper, answered even without a quorum
}

// words are all of ZooKeeper's words. A connection begins with a word or with the length of a
// frame. As a length, each word is beyond the largest [Config.FrameSize], so the two cannot be
// confused.
var words = map[string]word{
	"ruok": {(*Gateway).ruok, true},
	"gtmk": {(*Gateway).gtmk, true},
	"srvr": {(*Gateway).srvr, false},
	"stat": {(*Gateway).stat, false},
	"cons": {(*Gateway).cons, false},
	"conf": {(*Gateway).conf, true},
	"crst": {(*Gateway).crst, false},
	"srst": {(*Gateway).srst, false},
	"dump": {(*Gateway).dump, false},
	"envi": {(*Gateway).envi, true},
	"dirs": {(*Gateway).dirs, false},
	"isro": {(*Gateway).isro, true},
	"wchs": {(*Gateway).wchs, false},
	"wchc": {(*Gateway).wchc, false},
	"wchp": {(*Gateway).wchp, false},
	"mntr": {(*Gateway).mntr, false},
	"stmk": {},
	"hash": {},
}

// answered returns the words that can be answered here, sorted.
func answered() (names []string) {
	for name, w := range words {
		if w.text != nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

const notServing = "This ZooKeeper instance is not currently serving requests\n"

// word returns the answer to a word.
func (g *Gateway) word(name string) []byte {
	var b strings.Builder
	w := words[name]
	switch {
	case w.text == nil || !g.mayAnswer(name):
		fmt.Fprintf(&b, "%s is not executed because it is not in the whitelist.\n", name)
	case !w.always && !g.serving() && !g.readOnly.on():
		b.WriteString(notServing)
	default:
		w.text(g, &b)
	}
	return []byte(b.String())
}

// serving reports whether there is a leader, as far as this node knows.
func (g *Gateway) serving() bool { return g.leader() != 0 }

func (g *Gateway) leader() uint64 { return uint64(g.node.Engine.Leader(1).Member) }

func (g *Gateway) leads() bool { return g.leader() == uint64(g.node.Engine.Member()) }

const (
	modeLeader   = "leader"
	modeObserver = "observer"
	modeReadOnly = "read-only"
)

// mode returns ZooKeeper's name for this node's part on the first shard.
func (g *Gateway) mode() string {
	switch {
	case g.node.Config.Alone:
		return "standalone"
	case g.readOnly.on():
		return modeReadOnly
	case g.leads():
		return modeLeader
	case g.node.Engine.Learns():
		return modeObserver
	}
	return "follower"
}

// version names the version of ZooKeeper's protocol, with a suffix of ours. Monitors and clients
// look at the numbers.
const version = "3.9.0-vivarium"

var built = sync.OnceValue(func() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if at, err := time.Parse(time.RFC3339, s.Value); s.Key == "vcs.time" && err == nil {
				// The old format of ZooKeeper's servers, which clients parse.
				return at.UTC().Format("01/02/2006 15:04 GMT")
			}
		}
	}
	return "01/01/1970 00:00 GMT" // unknown; parsers want a date
})

func (g *Gateway) ruok(b *strings.Builder) {
	select {
	case <-g.node.Engine.Done(): // the connection was accepted before the port was closed
		b.WriteString(notServing)
	default:
		b.WriteString("imok")
	}
}

// gtmk answers ZooKeeper's default trace mask. It cannot be changed here.
func (g *Gateway) gtmk(b *strings.Builder) { b.WriteString("306") }

func (g *Gateway) isro(b *strings.Builder) {
	switch {
	case g.serving():
		b.WriteString("rw")
	case g.readOnly.on():
		b.WriteString("ro")
	default:
		b.WriteString("null")
	}
}

func (g *Gateway) srvr(b *strings.Builder) {
	g.writeVersion(b)
	g.writeServer(b)
}

func (g *Gateway) stat(b *strings.Builder) {
	g.writeVersion(b)
	b.WriteString("Clients:\n")
	for _, c := range g.connections() {
		fmt.Fprintf(b, " /%s[1](queued=%d,recved=%d,sent=%d)\n", c.raw.RemoteAddr(), c.queued(), c.figures.received.Load(), c.figures.sent.Load())
	}
	b.WriteString("\n")
	g.writeServer(b)
}

func (g *Gateway) writeVersion(b *strings.Builder) {
	fmt.Fprintf(b, "Zookeeper version: %s, built on %s\n", version, built())
	if g.readOnly.on() {
		b.WriteString("READ-ONLY mode; serving only read-only clients\n")
	}
}

func (g *Gateway) writeServer(b *strings.Builder) {
	least, mean, most := g.figures.latency()
	fmt.Fprintf(b, "Latency min/avg/max: %d/%s/%d\n", least, decimal(mean), most)
	fmt.Fprintf(b, "Received: %d\nSent: %d\n", g.figures.received.Load(), g.figures.sent.Load())
	fmt.Fprintf(b, "Connections: %d\nOutstanding: %d\n", len(g.connections()), g.outstanding.Load())
	mode := g.mode()
	fmt.Fprintf(b, "Zxid: 0x%x\nMode: %s\nNode count: %d\n", uint64(g.node.Engine.Tables.Visible()), mode, g.znodes())
	if mode == modeLeader {
		last, least, most := g.node.Engine.Tables.Proposals().Read()
		fmt.Fprintf(b, "Proposal sizes last/min/max: %d/%d/%d\n", last, least, most)
	}
}

// decimal formats v with one to four digits after the point, as Java does.
func decimal(v float64) string {
	s := strings.TrimRight(strconv.FormatFloat(v, 'f', 4, 64), "0")
	if strings.HasSuffix(s, ".") {
		s += "0"
	}
	return s
}

// znodes counts the root twice, as ZooKeeper does.
func (g *Gateway) znodes() int { return g.node.Engine.Tables.Znodes() + 1 }

// opNames are cons's names for the last request of a connection.
var opNames = map[wire.Op]string{
	wire.OpCreate: "CREA", wire.OpCreate2: "CREA", wire.OpCreateContainer: "CREA", wire.OpCreateTTL: "CREA", wire.OpDelete: "DELE",
	wire.OpSetData: "SETD", wire.OpSetACL: "SETA", wire.OpMulti: "MULT", wire.OpMultiRead: "MLTR", wire.OpReconfig: "RECO", wire.OpNative: "NATV",
	wire.OpExists: "EXIS", wire.OpGetData: "GETD", wire.OpGetACL: "GETA", wire.OpGetChildren: "GETC", wire.OpGetChildren2: "GETC",
	wire.OpGetAllChildrenNumber: "GETACN", wire.OpGetEphemerals: "GETE", wire.OpSync: "SYNC", wire.OpPing: "PING", wire.OpWhoAmI: "HOMI",
	wire.OpSetWatches: "SETW", wire.OpSetWatches2: "STW2", wire.OpAddWatch: "ADDW", wire.OpCheckWatches: "CHKW",
	wire.OpRemoveWatches: "REMW", wire.OpCloseSession: "CLOS", wire.OpCreateSession: "SESS",
}

func (g *Gateway) cons(b *strings.Builder) {
	for _, c := range g.connections() {
		c.mu.Lock()
		s, last, queued := c.session, c.last, len(c.queue)-c.head
		c.mu.Unlock()
		fmt.Fprintf(b, " /%s[1](queued=%d,recved=%d,sent=%d", c.raw.RemoteAddr(), queued, c.figures.received.Load(), c.figures.sent.Load())
		if s != nil {
			op := opNames[last.op]
			if last.at.IsZero() || op == "" {
				op = "NA"
			}
			fmt.Fprintf(b, ",sid=0x%x,lop=%s,est=%d,to=%d", uint64(s.ID()), op, c.arrived.UnixMilli(), s.Timeout().Milliseconds())
			if !last.at.IsZero() && last.xid >= 0 {
				fmt.Fprintf(b, ",lcxid=0x%x", last.xid)
			}
			least, mean, most := c.figures.latency()
			at := last.at
			if at.IsZero() {
				at = c.arrived
			}
			fmt.Fprintf(b, ",lzxid=0x%x,lresp=%d,llat=%d,minlat=%d,avglat=%d,maxlat=%d",
				uint64(last.zxid), at.UnixMilli(), last.latency.Milliseconds(), least, int64(mean), most)
		}
		b.WriteString(")\n")
	}
	b.WriteString("\n")
}

func (g *Gateway) crst(b *strings.Builder) {
	for _, c := range g.connections() {
		c.figures.reset()
	}
	b.WriteString("Connection stats reset.\n")
}

func (g *Gateway) srst(b *strings.Builder) {
	g.figures.reset()
	g.reads.reset()
	g.writes.reset()
	now := g.count()
	g.reset.Store(&now)
	g.node.Engine.Tables.Proposals().Reset()
	b.WriteString("Server stats reset.\n")
}

func (g *Gateway) conf(b *strings.Builder) {
	cfg := &g.node.Config
	_, port, _ := strings.Cut(g.Addr().String()[strings.LastIndex(g.Addr().String(), "]")+1:], ":")
	plain, secure := port, "-1"
	if g.tls != nil {
		plain, secure = secure, plain
	}
	size := dirSize(cfg.Dir)
	fmt.Fprintf(b, "clientPort=%s\nsecureClientPort=%s\ndataDir=%s\ndataDirSize=%d\ndataLogDir=%s\ndataLogSize=%d\n", plain, secure, cfg.Dir, size, cfg.Dir, size)
	fmt.Fprintf(b, "tickTime=%d\nmaxClientCnxns=%d\nminSessionTimeout=%d\nmaxSessionTimeout=%d\nclientPortListenBacklog=-1\nserverId=%d\n",
		cfg.Tick.Milliseconds(), max(g.cfg.ConnectionsPerAddress, 0), cfg.MinSessionTimeout.Milliseconds(), cfg.MaxSessionTimeout.Milliseconds(), cfg.Member)
	if cfg.Alone {
		return
	}
	b.WriteString("membership: \n")
	if config := g.node.Engine.Config(); config != "" {
		b.WriteString(config)
		return
	}
	ids := make([]embed.MemberID, 0, len(cfg.Members))
	for id := range cfg.Members {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range ids {
		fmt.Fprintf(b, "server.%d=%s:participant\n", id, cfg.Members[id])
	}
}

// dirSize returns the bytes of all files in a directory. Files that vanish meanwhile do not count.
func dirSize(dir string) (n int64) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if info, err := d.Info(); err == nil {
				n += info.Size()
			}
		}
		return nil
	})
	return n
}

func (g *Gateway) dirs(b *strings.Builder) {
	size := dirSize(g.node.Config.Dir)
	fmt.Fprintf(b, "datadir_size: %d\nlogdir_size: %d\n", size, size)
}

func (g *Gateway) envi(b *strings.Builder) {
	host, _ := os.Hostname()
	home, _ := os.UserHomeDir()
	wd, _ := os.Getwd()
	name := "?" // as in Java
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	fmt.Fprintf(b, "Environment:\nzookeeper.version=%s, built on %s\nhost.name=%s\ngo.version=%s\nos.name=%s\nos.arch=%s\nuser.name=%s\nuser.home=%s\nuser.dir=%s\n",
		version, built(), host, runtime.Version(), runtime.GOOS, runtime.GOARCH, name, home, wd)
}

// census returns the ensemble's sessions and their ephemerals. It is empty if the engine cannot
// answer.
func (g *Gateway) census() engine.Census {
	c, err := g.node.Engine.Tables.Census(g.ctx)
	if err != nil {
		g.logCensus(err)
	}
	return c
}

// dump lists the sessions as a follower of ZooKeeper does, even on the leader: nobody knows when
// they would expire.
func (g *Gateway) dump(b *strings.Builder) {
	census := g.census()
	owners := 0
	fmt.Fprintf(b, "SessionTracker dump:\nGlobal Sessions(%d):\n", len(census.Sessions))
	for _, s := range census.Sessions {
		fmt.Fprintf(b, "0x%x\t%dms\n", uint64(s.ID), s.Timeout.Milliseconds())
		if len(s.Ephemerals) > 0 {
			owners++
		}
	}
	fmt.Fprintf(b, "ephemeral nodes dump:\nSessions with Ephemerals (%d):\n", owners)
	for _, s := range census.Sessions {
		if len(s.Ephemerals) == 0 {
			continue
		}
		fmt.Fprintf(b, "0x%x:\n", uint64(s.ID))
		for _, path := range s.Ephemerals {
			fmt.Fprintf(b, "\t%s\n", path)
		}
	}
	attached := g.attached()
	fmt.Fprintf(b, "Connections dump:\nConnections Sets (%d)/(%d):\n", min(len(attached), 1), len(attached))
	if len(attached) > 0 {
		fmt.Fprintf(b, "%d expire at %s:\n", len(attached), time.Now().Format(time.UnixDate))
	}
	for _, c := range attached {
		fmt.Fprintf(b, "\tip: /%s sessionId: 0x%x\n", c.raw.RemoteAddr(), uint64(c.session.ID()))
	}
}

// attached returns the connections that have a session.
func (g *Gateway) attached() []*conn {
	return slices.DeleteFunc(g.connections(), func(c *conn) bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.session == nil
	})
}

// watched returns, for each path whose data is watched, the sessions that watch it. It also returns
// the number of watching connections, and the sum over all paths.
func (g *Gateway) watched() (paths map[string][]tree.SessionID, watching, total int) {
	paths = make(map[string][]tree.SessionID)
	for _, c := range g.attached() {
		own := c.watches.Paths()
		if len(own) > 0 {
			watching++
		}
		for _, path := range own {
			paths[path] = append(paths[path], c.session.ID())
			total++
		}
	}
	return paths, watching, total
}

func (g *Gateway) wchs(b *strings.Builder) {
	paths, watching, total := g.watched()
	fmt.Fprintf(b, "%d connections watching %d paths\nTotal watches:%d\n", watching, len(paths), total)
}

func (g *Gateway) wchc(b *strings.Builder) {
	for _, c := range g.attached() {
		paths := c.watches.Paths()
		if len(paths) == 0 {
			continue
		}
		fmt.Fprintf(b, "0x%x\n", uint64(c.session.ID()))
		for _, path := range paths {
			fmt.Fprintf(b, "\t%s\n", path)
		}
	}
	b.WriteString("\n")
}

func (g *Gateway) wchp(b *strings.Builder) {
	paths, _, _ := g.watched()
	for _, path := range sorted(paths) {
		fmt.Fprintf(b, "%s\n", path)
		for _, id := range paths[path] {
			fmt.Fprintf(b, "\t0x%x\n", uint64(id))
		}
	}
	b.WriteString("\n")
}

func sorted[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// mntr writes the keys of ZooKeeper's mntr whose values are known here, and the feature level. It
// makes up no value.
func (g *Gateway) mntr(b *strings.Builder) {
	g.monitor(func(key string, value any) { fmt.Fprintf(b, "zk_%s\t%v\n", key, value) })
}

// A fraction is a number that mntr writes as Java does.
type fraction float64

func (f fraction) String() string { return decimal(float64(f)) }

// monitor calls line with each key of mntr, without "zk_", and its value.
func (g *Gateway) monitor(line func(key string, value any)) {
	least, mean, most := g.figures.latency()
	cfg := &g.node.Config
	line("version", version+", built on "+built())
	mode := g.mode()
	line("server_state", mode)
	switch {
	case cfg.Alone, mode == modeReadOnly:
	case mode == modeLeader:
		line("peer_state", "leading - broadcast")
	case mode == modeObserver:
		line("peer_state", "observing - broadcast")
	default:
		line("peer_state", "following - broadcast")
	}
	line("min_latency", least)
	line("avg_latency", fraction(mean))
	line("max_latency", most)
	summary := func(name string, f *figures) {
		if n, mean, least, most := f.counted(); n > 0 {
			line("cnt_"+name, n)
			line("sum_"+name, f.total.Load()/1e6)
			line("min_"+name, least)
			line("avg_"+name, fraction(mean))
			line("max_"+name, most)
		}
	}
	summary("readlatency", &g.reads)
	summary("updatelatency", &g.writes)
	counts := g.counted()
	if n := counts.fsyncs.Count(); n > 0 { // nobody keeps the shortest and the longest one
		line("cnt_fsynctime", n)
		line("sum_fsynctime", counts.fsyncs.Sum.Milliseconds())
		line("avg_fsynctime", fraction(counts.fsyncs.Sum.Seconds()*1e3/float64(n)))
	}
	line("packets_received", g.figures.received.Load())
	line("packets_sent", g.figures.sent.Load())
	line("bytes_received_count", counts.received)
	line("response_bytes", counts.sent)
	line("connection_request_count", counts.connects)
	line("num_alive_connections", len(g.connections()))
	line("outstanding_requests", g.outstanding.Load())
	line("uptime", time.Since(g.since).Milliseconds())
	line("znode_count", g.znodes())
	count := 0
	for _, c := range g.attached() {
		data, children := c.watches.Counts()
		count += data + children
	}
	line("watch_count", count)
	sessions, ephemerals, err := g.node.Engine.Tables.Count(g.ctx)
	if err != nil {
		g.logCensus(err)
	}
	line("ephemerals_count", ephemerals)
	line("approximate_data_size", g.node.Engine.Tables.Size())
	line("global_sessions", sessions)
	line("local_sessions", g.readOnly.count())
	if open, err := os.ReadDir("/proc/self/fd"); err == nil {
		line("open_file_descriptor_count", len(open))
	}
	if most, ok := filesMax(); ok {
		line("max_file_descriptor_count", most)
	}
	line("connection_drop_probability", fraction(0))
	line("connection_rejected", g.refused.Load())
	line("auth_failed_count", g.authFailed.Load())
	line("snap_count", counts.states)
	line("feature_level", g.node.Engine.Levels.Level())
	s := g.standing()
	line("quorum_size", s.voters)
	if cfg.Alone {
		return
	}
	if mode == modeLeader {
		line("learners", g.node.Engine.Peers())
		line("synced_followers", s.followers)
		line("synced_non_voting_followers", 0) // who was removed is gone
	}
	if mode != modeObserver {
		line("synced_observers", s.observers)
	}
	if since, ok := g.node.Engine.LeadsSince(); ok && mode == modeLeader {
		line("leader_uptime", time.Since(since).Milliseconds())
		last, least, most := g.node.Engine.Tables.Proposals().Read()
		line("last_proposal_size", last)
		line("min_proposal_size", least)
		line("max_proposal_size", most)
	}
}

// syncedWithin is how many entries a member may be behind and still count as synced.
const syncedWithin = 1000

// A standing counts members: those that vote, and those others that follow the leader closely. Only
// the leader knows who does.
type standing struct{ voters, followers, observers int }

func (g *Gateway) standing() (s standing) {
	for _, m := range g.node.Engine.Members() {
		votes, other := m.Votes(1), uint64(m.ID) != uint64(g.node.Engine.Member())
		synced := other && m.OutOf() == 0 && m.Answers && m.Behind <= syncedWithin
		switch {
		case votes && synced:
			s.voters++
			s.followers++
		case votes:
			s.voters++
		case synced:
			s.observers++
		}
	}
	return s
}

// filesMax returns how many files this process may have open.
func filesMax() (string, bool) {
	limits, err := os.ReadFile("/proc/self/limits")
	if err != nil {
		return "", false
	}
	_, rest, _ := strings.Cut(string(limits), "Max open files")
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		return "", false
	}
	return fields[0], true
}
