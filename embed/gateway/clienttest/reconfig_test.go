package clienttest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/gateway"
	"github.com/vivarium-go/vivarium/internal/testkit/child"
	"github.com/vivarium-go/vivarium/internal/testkit/zookeeper"
)

const configPath = "/zookeeper/config"

// A council is four servers whose members clients may change. The first three vote, and the last
// is an observer.
type council struct {
	name  string
	addrs []string // of the servers, by id - 1
	off   string   // of a server whose reconfig is turned off
}

// startCouncil starts Vivarium's members with a gateway each.
func startCouncil(t *testing.T) *council {
	t.Helper()
	e := embedtest.New(t, 3, embedtest.Options{Config: func(c *embed.Config) {
		c.SuperDigest = embed.Digest("super:test")
	}})
	e.Ready(e.Join())
	addrs, err := child.FreeAddrs(4)
	must(t, err)
	c := &council{name: "Vivarium", addrs: addrs, off: start(t).Addr().String()}
	for i, place := range e.Members() {
		g, err := gateway.Start(e.Node(place), gateway.Config{Listen: addrs[i], Words: []string{"*"}, ConnectionsPerAddress: -1,
			Reconfig: true, Advertise: addrs[i]})
		must(t, err)
		t.Cleanup(func() { _ = g.Close() })
	}
	return c
}

// startZooKeeperCouncil starts ZooKeeper's servers.
func startZooKeeperCouncil(t *testing.T) *council {
	t.Helper()
	zookeeper.Need(t)
	// The digest is that of super:test. ZooKeeper makes system properties of keys that it does not
	// know. Like Vivarium, it lets a voter stay alone.
	addrs := zookeeper.StartAnnounced(t, 4, 1, zooKeeperTimes+"reconfigEnabled=true\nstandaloneEnabled=false\n"+
		"DigestAuthenticationProvider.superDigest=super:D/InIHSb7yEEbrWz8b9l71RjZJU=\n")
	return &council{name: "ZooKeeper", addrs: addrs, off: zookeeper.Start(t, 1, zooKeeperTimes)[0]}
}

// A play is one client's run through the steps of testdata/reconfig.txt. Its transcript has no ids,
// addresses and versions. Two participants that do not lead are called A and B, the leader is L,
// and the observer is O.
//
//	connect A             the client connects to A, or to the server called off
//	auth user:password    as that user, from now until it connects again
//	config                reads the config
//	watch                 the same, with a watch
//	event                 waits for the event of the watch
//	follow                takes the servers of the config as those to connect to
//	grant                 the superuser lets user:test write the config, too
//	revoke                the superuser takes that back
//	reconfig              changes the members: joining=LIST leaving=LIST members=LIST version=V
//	patiently reconfig    the same, again while it is too early
//	race                  asks that B leaves the last config, while the superuser asks another server
//	                      that O leaves it; whoever leaves is B from then on
//
// A version is last, old or next: that of the last config in the transcript, that of the one
// before, or one that does not exist yet. In lists, #A is the id of A, <A> is A's line in the
// config at the beginning, and <A:observer> has another role. <A;free> has another port for
// clients.
type play struct {
	t       *testing.T
	council *council
	client  asker
	super   *zk.Conn

	first     []string          // lines of the config at the beginning
	lines     map[string]string // of the servers, by name
	names     map[string]string // by id
	last, old int64             // versions
}

// An asker is a client of the members. It gets the words of a request, and returns those of the
// answer: first the code, which is 0 for a success. A word "-" is a string that is null. Lines of a
// config end in "|".
//
//	connect SERVERS                                  0
//	auth USER:PASSWORD                               0
//	config, watch                                    0 MZXID VERSION CONFIG
//	event                                            0 TYPE PATH
//	follow SERVERS                                   0 SERVERS
//	reconfig JOINING LEAVING MEMBERS FROM-VERSION    0 MZXID VERSION CONFIG
type asker interface {
	ask(words ...string) []string
}

// A step is a line of a script, with what a client got for it.
type step struct{ title, line, result string }

// isOneOf reports whether a list has the step's line or its title.
func (s *step) isOneOf(list []string) bool {
	return slices.Contains(list, s.line) || slices.Contains(list, s.title)
}

// roles are the names of a play, in the order in which they are printed.
var roles = []string{"A", "B", "L", "O"}

// newPlay finds out who is who.
func newPlay(t *testing.T, c *council, client asker) *play {
	t.Helper()
	p := &play{t: t, council: c, client: client, lines: make(map[string]string), names: make(map[string]string)}
	leader := ""
	until(t, "a leader", func() bool {
		for _, addr := range c.addrs {
			if strings.Contains(zookeeper.Ask(addr, "srvr"), "Mode: leader") {
				leader = addr
			}
		}
		return leader != ""
	})
	var err error
	p.super, _, err = zk.Connect([]string{leader}, sessionTimeout, zk.WithLogger(silent{}))
	must(t, err)
	t.Cleanup(p.super.Close)
	must(t, p.super.AddAuth("digest", []byte("super:test")))
	until(t, "the config of all servers", func() bool {
		data, _, err := p.super.Get(configPath)
		p.first = serverLines(string(data))
		return err == nil && strings.Count(string(data), ";127.0.0.1:") == len(c.addrs)
	})
	free := []string{"A", "B"}
	for _, line := range p.first {
		id := configLine.FindStringSubmatch(line)[1]
		name := "O"
		switch {
		case strings.HasSuffix(line, ";"+leader):
			name = "L"
		case strings.Contains(line, ":participant;"):
			name, free = free[0], free[1:]
		}
		p.lines[name], p.names[id] = line, name
	}
	return p
}

// configLine is a server's line: its id, its addresses among the servers, its role, and its address
// for clients.
var configLine = regexp.MustCompile(`^server\.(\d+)=([\w.-]+:\d+:\d+):(participant|observer);([\w.-]+:\d+)$`)

func serverLines(config string) []string {
	return slices.DeleteFunc(strings.FieldsFunc(config, func(r rune) bool { return r == '|' || r == '\n' }), func(line string) bool {
		return !strings.HasPrefix(line, "server.")
	})
}

// run makes the steps of a script but those that the client cannot make.
func (p *play) run(script []step, cannot []string) (done []step) {
	p.t.Helper()
	for _, s := range script {
		if !s.isOneOf(cannot) {
			s.result = p.do(s.line)
			done = append(done, s)
		}
	}
	return done
}

func (p *play) do(line string) string {
	p.t.Helper()
	words := strings.Fields(line)
	switch words[0] {
	case "connect":
		return outcome(p.client.ask("connect", p.address(words[1])))
	case "auth":
		return outcome(p.client.ask("auth", words[1]))
	case "config", "watch":
		return p.config(p.client.ask(words[0]))
	case "event":
		return strings.Join(p.client.ask("event"), " ")
	case "follow":
		return p.follow()
	case "grant":
		return p.setACL(append(zk.WorldACL(zk.PermRead), zk.DigestACL(zk.PermWrite, "user", "test")...))
	case "revoke":
		return p.setACL(zk.WorldACL(zk.PermRead))
	case "reconfig":
		return p.config(p.client.ask(p.reconfig(words[1:])...))
	case "patiently":
		return p.config(p.patiently(words[2:]))
	case "race":
		return p.race()
	}
	p.t.Fatalf("no step is called %s", line)
	return ""
}

// address returns that of a server for clients.
func (p *play) address(name string) string {
	if name == "off" {
		return p.council.off
	}
	return configLine.FindStringSubmatch(p.lines[name])[4]
}

func (p *play) setACL(acl []zk.ACL) string {
	_, err := p.super.SetACL(configPath, acl, -1)
	must(p.t, err)
	return "done"
}

// follow tells the client the servers of the config. All that it takes must answer.
func (p *play) follow() string {
	p.t.Helper()
	data, _, err := p.super.Get(configPath)
	must(p.t, err)
	var servers []string
	for _, line := range serverLines(string(data)) {
		servers = append(servers, configLine.FindStringSubmatch(line)[4])
	}
	answer := p.client.ask("follow", strings.Join(servers, ","))
	if answer[0] != "0" {
		return outcome(answer)
	}
	taken := strings.Split(answer[1], ",")
	var known []string
	for _, name := range roles {
		if at := p.address(name); slices.Contains(taken, at) {
			known = append(known, name)
			if zookeeper.Ask(at, "ruok") != "imok" {
				known = append(known, "(which does not answer)")
			}
		}
	}
	return fmt.Sprintf("%d servers: %s", len(taken), strings.Join(known, " "))
}

// reconfig returns the words of a request for a change.
func (p *play) reconfig(args []string) []string {
	p.t.Helper()
	words := map[string]string{"joining": "-", "leaving": "-", "members": "-", "version": "-1"}
	for _, arg := range args {
		key, value, _ := strings.Cut(arg, "=")
		words[key] = p.expand(value)
	}
	for name, version := range map[string]int64{"last": p.last, "old": p.old, "next": p.last + 1} {
		if words["version"] == name {
			words["version"] = strconv.FormatInt(version, 10)
		}
	}
	return []string{"reconfig", words["joining"], words["leaving"], words["members"], words["version"]}
}

// placeholder stands for an id or a line of a server.
var placeholder = regexp.MustCompile(`#([ABLO])|<([ABLO])([:;]?)(\w*)>`)

func (p *play) expand(list string) string {
	return placeholder.ReplaceAllStringFunc(list, func(found string) string {
		m := placeholder.FindStringSubmatch(found)
		line := configLine.FindStringSubmatch(p.lines[m[1]+m[2]])
		id, main, role, client := line[1], line[2], line[3], line[4]
		switch {
		case m[1] != "":
			return id
		case m[3] == ":":
			role = m[4]
		case m[3] == ";":
			other, err := child.FreeAddrs(1)
			must(p.t, err)
			client = other[0]
		}
		return "server." + id + "=" + main + ":" + role + ";" + client
	})
}

// patiently asks for a change until nobody says that it is too early for it. While ZooKeeper's servers
// elect a leader, they drop their clients. Then it asks again, unless its own server is to leave.
func (p *play) patiently(args []string) (answer []string) {
	p.t.Helper()
	words, early := p.reconfig(args), []string{"NewConfigNoQuorum", "ReconfigInProgress"}
	if !slices.Contains(args, "leaving=#A") {
		early = append(early, "ConnectionLoss")
	}
	until(p.t, "a quorum of the new config", func() bool {
		answer = p.client.ask(words...)
		return !slices.Contains(early, outcome(answer))
	})
	return answer
}

// race asks for two changes at two servers.
func (p *play) race() string {
	p.t.Helper()
	other := make(chan error, 1)
	go func() {
		_, err := p.super.IncrementalReconfig(nil, []string{p.expand("#O")}, p.last)
		other <- err
	}()
	results := []string{outcome(p.client.ask(p.reconfig([]string{"leaving=#B", "version=last"})...)), outcome([]string{codeOf(<-other)})}
	if results[1] == "ok" {
		b, o := p.expand("#B"), p.expand("#O")
		p.names[b], p.names[o] = "O", "B"
		p.lines["B"], p.lines["O"] = p.expand("<O:participant>"), p.lines["B"]
	}
	for i, r := range results {
		if r == "BadVersion" || r == "ReconfigInProgress" {
			results[i] = "refused"
		}
	}
	slices.Sort(results)
	return strings.Join(results, " ")
}

// config renders an answer that has a config.
func (p *play) config(answer []string) string {
	p.t.Helper()
	if answer[0] != "0" {
		return outcome(answer)
	}
	mzxid, err := strconv.ParseInt(answer[1], 10, 64)
	must(p.t, err)
	lists := make(map[string][]string)
	for _, line := range serverLines(answer[3]) {
		m := configLine.FindStringSubmatch(line)
		if m == nil {
			return "a line of a new form: " + line
		}
		name := m[1]
		if known := p.names[m[1]]; known != "" {
			name = known
		}
		lists[m[3]] = append(lists[m[3]], name)
	}
	age := "the same"
	switch {
	case p.last == 0:
		age = "some"
	case mzxid > p.last:
		age = "a later"
	case mzxid < p.last:
		age = "an earlier"
	}
	if mzxid != p.last {
		p.last, p.old = mzxid, p.last
	}
	text := ""
	for _, role := range []string{"participant", "observer"} {
		slices.Sort(lists[role])
		text += fmt.Sprintf("%ss %v, ", role, lists[role])
	}
	if end := fmt.Sprintf("|version=%x", mzxid); !strings.HasSuffix(answer[3], end) || answer[2] != "-1" {
		return text + "an unknown version"
	}
	return text + age + " version"
}

// outcome renders the code of an answer.
func outcome(answer []string) string {
	if name, known := outcomes[answer[0]]; known {
		return name
	}
	return "code " + strings.Join(answer, " ")
}

var outcomes = map[string]string{"0": "ok", "-4": "ConnectionLoss", "-5": "MarshallingError", "-8": "BadArguments", "-13": "NewConfigNoQuorum",
	"-14": "ReconfigInProgress", "-102": "NoAuth", "-103": "BadVersion", "-123": "ReconfigDisabled"}

// restore makes the members of ZooKeeper's council those of the beginning, for the next client.
func (p *play) restore() {
	p.t.Helper()
	until(p.t, "the old config", func() bool {
		data, _, err := p.super.Get(configPath)
		if err == nil && slices.Equal(serverLines(string(data)), p.first) {
			return true
		}
		_, _ = p.super.Reconfig(p.first, -1)
		return false
	})
	for _, line := range p.first {
		m := configLine.FindStringSubmatch(line)
		until(p.t, "server "+m[1]+" to have its role", func() bool {
			text := zookeeper.Ask(m[4], "srvr")
			return m[3] == "observer" == strings.Contains(text, "Mode: observer") && strings.Contains(text, "Mode: ")
		})
	}
}

// script reads the steps of a file. A line that begins with two spaces is the result of the step
// before.
func script(t *testing.T, file string) (steps []step) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", file))
	must(t, err)
	title := ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimRight(line, "\n")
		result, isResult := strings.CutPrefix(line, "  ")
		switch {
		case line == "", line[0] == '#':
		case strings.HasPrefix(line, "== "):
			title = line
		case isResult:
			steps[len(steps)-1].result = result
		default:
			steps = append(steps, step{title: title, line: line})
		}
	}
	return steps
}

// A changer is a client that can change the members.
type changer struct {
	name   string
	start  func(t *testing.T) asker // skips the test where the client is not installed
	cannot []string                 // lines and titles of steps that it cannot make
}

// bothLists is a step for clients whose interface lets them send a whole list and a change.
const bothLists = "reconfig members=<A>,<B>,<L>,<O:participant> joining=garbage leaving=one"

var changers = []changer{
	{"ZooKeeperAdmin", func(t *testing.T) asker { return open(t, curator(t, "testdata/Reconfig.java")("admin")) }, nil},
	{"Curator", func(t *testing.T) asker { return open(t, curator(t, "testdata/Reconfig.java")("curator")) }, []string{bothLists}},
	{"C", startC, nil},
	// kazoo's connection does not survive the code ReconfigDisabled, which it does not know.
	{"kazoo", func(t *testing.T) asker { return open(t, exec.Command(python(t), "testdata/reconfig_kazoo.py")) }, []string{"== turned off"}},
	{"go-zookeeper", func(t *testing.T) asker { return &goClient{t: t} }, []string{"follow", bothLists}},
	{"zkCli", startShell, []string{"follow", bothLists}},
}

const (
	nothingToDo = "a change that changes nothing makes no new config"
	joinsItself = "a member joins by itself, with a directory of its own: a client cannot name one that is unknown"
	isGone      = "a member that is removed never comes back as the same"
	mayNot      = "who may not change the members is told nothing else"
)

// reconfigDeviations are the steps in which Vivarium answers otherwise than ZooKeeper.
var reconfigDeviations = []struct{ title, line, result, reason string }{
	{"== permission comes last", "reconfig leaving=#O version=next", "NoAuth", mayNot},
	{"== permission comes last", "reconfig joining=garbage", "NoAuth", mayNot},
	{"== permission comes last", "reconfig leaving=one", "NoAuth", mayNot},
	{"== refusals", "reconfig joining=server.11=127.0.0.1:1:2;3,server.12=127.0.0.1:4:5;6,server.13=127.0.0.1:7:8;9,server.14=127.0.0.1:10:11;12",
		"BadArguments", joinsItself},
	{"== a whole list counts, and no list beside it", bothLists, "participants [A B L O], observers [], the same version", nothingToDo},
	{"== roles", "reconfig joining=<B:observer>", "BadArguments", "a voter does not become an observer, it can only leave"},
	{"== roles", "patiently reconfig joining=<B:participant>", "participants [A B L O], observers [], the same version", nothingToDo},
	{"== addresses", "reconfig joining=<B;free>", "BadArguments", "only the member itself changes where it is"},
	{"== addresses", "patiently reconfig joining=<B>", "participants [A B L O], observers [], the same version", nothingToDo},
	{"== a server that nobody has started", "reconfig joining=server.9=127.0.0.1:1:2:observer;127.0.0.1:3", "BadArguments", joinsItself},
	{"== a server that nobody has started", "reconfig leaving=9", "participants [A B L O], observers [], the same version", nothingToDo},
	{"== of two changes at once one is made", "reconfig leaving=#B", "participants [A L O], observers [], the same version", nothingToDo},
	{"== and comes back", "patiently reconfig joining=<B>", "BadArguments", isGone},
	{"== one leaves, and one joins that is there already", "patiently reconfig joining=<O:participant> leaving=#B", "participants [A L O], observers [], the same version",
		nothingToDo},
	{"== the client's own server leaves", "patiently reconfig leaving=#A", "ConnectionLoss", "a member that is out serves nobody, so its clients go elsewhere"},
}

// Clients that read and change the members get from Vivarium what they get from ZooKeeper, except
// for reconfigDeviations. All clients get the same.
func TestReconfig(t *testing.T) {
	t.Parallel()
	steps := script(t, "reconfig.txt")
	if *update {
		c := changers[0]
		writeScript(t, "reconfig.golden", newPlay(t, startZooKeeperCouncil(t), c.start(t)).run(steps, c.cannot))
	}
	recorded := script(t, "reconfig.golden")
	t.Run("ZooKeeper", func(t *testing.T) {
		t.Parallel()
		council := startZooKeeperCouncil(t)
		for _, c := range changers {
			t.Run(c.name, func(t *testing.T) {
				client := c.start(t)
				p := newPlay(t, council, client)
				t.Cleanup(p.restore)
				same(t, recorded, p.run(steps, c.cannot), c.cannot)
			})
		}
	})
	expected := slices.Clone(recorded)
	for _, d := range reconfigDeviations {
		at := slices.IndexFunc(expected, func(s step) bool { return s.title == d.title && s.line == d.line && s.result != d.result })
		if at < 0 {
			t.Fatalf("ZooKeeper does the same: %s: %s: %s", d.title, d.line, d.reason)
		}
		expected[at].result = d.result
	}
	for _, c := range changers {
		t.Run("Vivarium/"+c.name, func(t *testing.T) {
			t.Parallel() // they wait more than they compute
			client := c.start(t)
			same(t, expected, newPlay(t, startCouncil(t), client).run(steps, c.cannot), c.cannot)
		})
	}
}

// same checks that a client got what is expected in every step that it can make.
func same(t *testing.T, expected, got []step, cannot []string) {
	t.Helper()
	expected = slices.DeleteFunc(slices.Clone(expected), func(s step) bool { return s.isOneOf(cannot) })
	for i := range min(len(expected), len(got)) {
		if e, g := expected[i], got[i]; e != g {
			t.Errorf("%s\n%s\ngot  %s\nwant %s", g.title, g.line, g.result, e.result)
		}
	}
	if len(expected) != len(got) {
		t.Errorf("%d steps, want %d", len(got), len(expected))
	}
}

func writeScript(t *testing.T, file string, steps []step) {
	t.Helper()
	var text strings.Builder
	title := ""
	for _, s := range steps {
		if s.title != title {
			title = s.title
			fmt.Fprintf(&text, "%s\n", title)
		}
		fmt.Fprintf(&text, "%s\n  %s\n", s.line, s.result)
	}
	must(t, os.WriteFile(filepath.Join("testdata", file), []byte(text.String()), 0o644))
}
