package gateway

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/internal/wire"
)

// ask sends a word as nc does: it closes its sending side at once. A bubble's connections have no
// sides.
func ask(t testing.TB, g *Gateway, word string) string {
	t.Helper()
	c := dial(t, g)
	defer c.Close()
	c.write([]byte(word))
	if tcp, ok := c.Conn.(*net.TCPConn); ok {
		if err := tcp.CloseWrite(); err != nil {
			t.Fatal(err)
		}
	}
	return string(c.ends())
}

// 11.1: only listed words are answered, by default srvr.
func TestWordsOnTheList(t *testing.T) {
	g := start(t, Config{})
	if got := ask(t, g, "srvr"); !strings.HasPrefix(got, "Zookeeper version: ") {
		t.Errorf("srvr: %q", got)
	}
	for _, word := range []string{"ruok", "mntr", "hash", "gtmk", "stmk"} {
		if got := ask(t, g, word); got != word+" is not executed because it is not in the whitelist.\n" {
			t.Errorf("%s: %q", word, got)
		}
	}
	if got := ask(t, g, "nope"); got != "" {
		t.Errorf("an unknown word: %q", got)
	}
	g = start(t, Config{Words: []string{"ruok", "mntr"}})
	if got := ask(t, g, "ruok"); got != "imok" {
		t.Errorf("ruok: %q", got)
	}
	if got := ask(t, g, "srvr"); !strings.Contains(got, "whitelist") {
		t.Errorf("srvr: %q", got)
	}
}

// 10.6: a connection that begins with a word cannot begin with a frame.
func TestNoWordIsAFrame(t *testing.T) {
	for name := range words {
		if len(name) != 4 {
			t.Fatalf("%q has not four letters", name)
		}
		most := Config{Listen: "127.0.0.1:0", FrameSize: int(binary.BigEndian.Uint32([]byte(name)))}
		if err := most.Validate(); err == nil {
			t.Errorf("a frame may be as long as %q says", name)
		}
	}
}

// 11.1: words have the formats that monitors read.
func TestWords(t *testing.T) {
	g := start(t, Config{Words: []string{"*"}})
	c := connect(t, g)
	c.must(create("/e", nil, 1))
	c.must(op(wire.OpGetData, "/e"))
	sid, timeout := fmt.Sprintf("0x%x", uint64(c.SessionID)), fmt.Sprint(lasting().Milliseconds())
	server := `Latency min/avg/max: \d+/\d+\.\d{1,4}/\d+\nReceived: \d+\nSent: \d+\nConnections: \d+\nOutstanding: 0\nZxid: 0x[0-9a-f]+\nMode: standalone\nNode count: 6\n`
	version := `Zookeeper version: \d+\.\d+\.\d+-vivarium, built on .*\n`
	line := ` /127\.0\.0\.1:\d+\[1\]\(queued=\d+,recved=\d+,sent=\d+`
	for word, want := range map[string]string{
		"ruok": `imok`,
		"isro": `rw`,
		"gtmk": `306`,
		"srvr": version + server,
		"stat": version + `Clients:\n(` + line + `\)\n)+\n` + server,
		"cons": `(` + line + `\)\n)*` + line + `,sid=` + sid + `,lop=GETD,est=\d+,to=` + timeout + `,lcxid=0x2,lzxid=0x[0-9a-f]+,lresp=\d+,llat=\d+,minlat=\d+,avglat=\d+,maxlat=\d+\)\n(` + line + `\)\n)*\n`,
		"conf": `clientPort=\d+\nsecureClientPort=-1\ndataDir=.*\ndataDirSize=\d+\ndataLogDir=.*\ndataLogSize=\d+\ntickTime=5\nmaxClientCnxns=60\nminSessionTimeout=360\nmaxSessionTimeout=60000\nclientPortListenBacklog=-1\nserverId=1\n`,
		"dump": `SessionTracker dump:\nGlobal Sessions\(1\):\n` + sid + `\t` + timeout + `ms\nephemeral nodes dump:\nSessions with Ephemerals \(1\):\n` + sid + `:\n\t/e\nConnections dump:\nConnections Sets \(1\)/\(1\):\n1 expire at .*:\n\tip: /127\.0\.0\.1:\d+ sessionId: ` + sid + `\n`,
		"envi": `Environment:\nzookeeper\.version=.*\nhost\.name=.*\n(.*=.*\n)+user\.name=.+\n(.*=.*\n)+`,
		"dirs": `datadir_size: \d+\nlogdir_size: \d+\n`,
		"wchs": `0 connections watching 0 paths\nTotal watches:0\n`,
		"wchc": `\n`,
		"wchp": `\n`,
		"mntr": `zk_version\t\d.*\nzk_server_state\tstandalone\n(zk_[a-z_]+\t.*\n)+zk_cnt_readlatency\t1\n(zk_[a-z_]+\t.*\n)+`,
	} {
		if got := ask(t, g, word); !regexp.MustCompile(`^` + want + `$`).MatchString(got) {
			t.Errorf("%s:\n%s\nwant\n%s", word, got, want)
		}
	}
	// A client may send a line's end, and may leave its sending side open.
	if got := ask(t, g, "ruok\n"); got != "imok" {
		t.Errorf("ruok with a line's end: %q", got)
	}
	w := dial(t, g)
	w.write([]byte("ruok"))
	if got := string(w.ends()); got != "imok" {
		t.Errorf("ruok: %q", got)
	}
	mntr := ask(t, g, "mntr")
	for _, key := range []string{"zk_znode_count\t6\n", "zk_ephemerals_count\t1\n", "zk_global_sessions\t1\n", "zk_watch_count\t0\n", "zk_outstanding_requests\t0\n", "zk_feature_level\t"} {
		if !strings.Contains(mntr, key) {
			t.Errorf("mntr has no %q:\n%s", key, mntr)
		}
	}
	if got := ask(t, g, "srst"); got != "Server stats reset.\n" {
		t.Errorf("srst: %q", got)
	}
	if got := ask(t, g, "srvr"); !strings.Contains(got, "\nReceived: 0\nSent: 0\n") {
		t.Errorf("srvr after srst: %q", got)
	}
	if got := ask(t, g, "crst"); got != "Connection stats reset.\n" {
		t.Errorf("crst: %q", got)
	}
	if got := ask(t, g, "cons"); !strings.Contains(got, "recved=0,sent=0,sid=") {
		t.Errorf("cons after crst: %q", got)
	}
}

// 11.1: what a leader's words have and a follower's do not, and an ensemble's beside a single
// server's.
func TestWordsOfAnEnsemble(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		e := embedtest.New(t, 3, embedtest.Options{})
		members := `membership: \nserver\.1=member-1\.test:1:participant\nserver\.2=.*:participant\nserver\.3=.*:participant\n`
		for _, id := range e.Members() {
			g := startAt(t, e, id, Config{Words: []string{"*"}})
			c := connect(t, g)
			c.must(create(fmt.Sprintf("/m%d", id), []byte("123"), 0))
			mode, of, proposals := "follower", "zk_synced_observers\t0\n", ""
			if id == 2 {
				mode, proposals = "leader", `Proposal sizes last/min/max: \d+/\d+/\d+\n`
				of = "zk_learners\t2\nzk_synced_followers\t2\nzk_synced_non_voting_followers\t0\nzk_synced_observers\t0\nzk_leader_uptime\t\\d+\n" +
					"zk_last_proposal_size\t\\d+\nzk_min_proposal_size\t\\d+\nzk_max_proposal_size\t\\d+\n"
			}
			for word, want := range map[string]string{
				"srvr": `(.*\n)+Mode: ` + mode + `\nNode count: \d+\n` + proposals,
				"stat": `(.*\n)+Mode: ` + mode + `\nNode count: \d+\n` + proposals,
				"conf": `(.*\n)+serverId=` + fmt.Sprint(id) + `\n` + members,
				"mntr": `(zk_.*\n)+zk_server_state\t` + mode + `\nzk_peer_state\t(leading|following) - broadcast\n(zk_.*\n)+zk_quorum_size\t3\n` + of,
			} {
				wait(t, word, func() bool {
					e.TransferLeadership(2) // it may have lost the leadership since
					return regexp.MustCompile(`^` + want + `$`).MatchString(ask(t, g, word))
				})
			}
			if r := c.must(op(wire.OpGetData, "/zookeeper/config")); r.Data == nil || len(r.Data) > 0 {
				t.Errorf("the members are fixed, and the config is %q", r.Data)
			}
			if got := ask(t, g, "srst"); got != "Server stats reset.\n" {
				t.Errorf("srst: %q", got)
			}
		}
	})
}

// approximate_data_size counts paths and data, as ZooKeeper does. A fresh server has 44.
func TestDataSize(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		g := start(t, Config{Words: []string{"mntr"}})
		c := connect(t, g)
		is := func(want int) (string, bool) {
			got := ask(t, g, "mntr")
			return got, strings.Contains(got, fmt.Sprintf("zk_approximate_data_size\t%d\n", want))
		}
		size := func(want int) {
			t.Helper()
			if got, ok := is(want); !ok {
				t.Errorf("want %d bytes: %s", want, got)
			}
		}
		size(44)
		c.must(create("/abc", []byte("12345"), 0))
		size(44 + 4 + 5)
		c.must(create("/abc/x", nil, 1))
		c.must(with(op(wire.OpSetData, "/abc"), func(o *wire.Operation) { o.Data = []byte("1") }))
		size(44 + 4 + 1 + 6)
		c.must(op(wire.OpCloseSession, ""))
		// The ephemeral may be on another shard than the session.
		wait(t, "the end of its ephemeral", func() bool {
			_, ok := is(44 + 4 + 1)
			return ok
		})
	})
}

// 11.1: dirs and conf count every file below the node's directory, for the image and for the log.
func TestDirSizes(t *testing.T) {
	const size int64 = 1 << 30 // sparse, and more than this node writes itself
	var dir string
	n := startNode(t, func(c *embed.Config) { dir = c.Dir })
	g := startOn(t, n, Config{Words: []string{"dirs", "conf"}})
	below := filepath.Join(dir, "a", "b")
	if err := os.MkdirAll(below, 0o700); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(below, "large"))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Truncate(size), f.Close()); err != nil {
		t.Fatal(err)
	}
	for word, format := range map[string]string{
		"dirs": `^datadir_size: (\d+)\nlogdir_size: (\d+)\n$`,
		"conf": `\ndataDirSize=(\d+)\ndataLogDir=.*\ndataLogSize=(\d+)\n`,
	} {
		got := ask(t, g, word)
		m := regexp.MustCompile(format).FindStringSubmatch(got)
		if m == nil {
			t.Errorf("%s: %q", word, got)
			continue
		}
		for _, text := range m[1:] {
			if bytes, err := strconv.ParseInt(text, 10, 64); err != nil || bytes <= size || bytes > 2*size {
				t.Errorf("%s counts %s bytes: want %d to %d", word, text, size, 2*size)
			}
		}
	}
}

// A node that has failed or is closed closes its gateways. Connections from before still get true
// answers: the node serves nobody and leads nothing.
func TestWordsOfAnEndedNode(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		n := startNode(t, nil)
		g := startOn(t, n, Config{Words: []string{"*"}})
		if err := n.Close(); err != nil {
			t.Fatal(err)
		}
		for name := range words {
			want := notServing
			switch name {
			case "isro":
				want = "null"
			case "conf", "envi", "gtmk", "stmk", "hash": // their answers do not change
				continue
			}
			if got := string(g.word(name)); got != want {
				t.Errorf("%s: %q, want %q: a word that is always answered belongs in the switch above", name, got, want)
			}
		}
		side, other := net.Pipe()
		late := newConn(g, side)
		go func() {
			q := hello()
			_, _ = other.Write(q.AppendFrame(nil))
		}()
		if err := late.converse(); err == nil || late.session != nil {
			t.Errorf("a session was opened: %v", err)
		}
		_ = other.Close()
	})
}
