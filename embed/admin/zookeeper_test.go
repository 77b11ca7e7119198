package admin_test

import (
	"encoding/json"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/admin"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/gateway"
	"github.com/vivarium-go/vivarium/embed/internal/embedkit"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/internal/wire"
)

// missing are what the AdminServer of ZooKeeper 3.8.0 answers and this one does not. Whole commands
// change something, or tell of what does not exist here.
var missing = map[string][]string{
	"connection_stat_reset": nil, "stat_reset": nil, // changes by GET
	"hash": nil, "zabstate": nil, "observers": nil, "last_snapshot": nil,
	"environment": {"java.class.path", "java.compiler", "java.home", "java.io.tmpdir", "java.library.path", "java.vendor", "java.version",
		"jvm.memory.free", "jvm.memory.max", "jvm.memory.total", "os.memory.free", "os.memory.max", "os.memory.total", "os.version",
		"user.dir", "user.home", "user.name"}, // the process's own
	"monitor": {"last_client_response_size", "max_client_response_size", "min_client_response_size", "non_mtls_local_conn_count",
		"non_mtls_remote_conn_count", "outstanding_tls_handshake"}, // not counted
}

// more are what this one answers beyond that.
var more = map[string][]string{
	"environment": {"go.version"},
	"monitor": {"feature_level", "quorum_size", "connection_rejected", // the latter is among ZooKeeper's internal counters
		"cnt_readlatency", "sum_readlatency", "min_readlatency", "avg_readlatency", "max_readlatency"},
}

// The commands answer with the keys of a real AdminServer, which were recorded from Debian's
// package with one client that had an ephemeral and a watch.
func TestCommands_AreZooKeepers(t *testing.T) {
	var real struct {
		Names    map[string]string
		Keys     map[string][]string
		Counters []string // internal ones in monitor, of which this one has some
	}
	text, err := os.ReadFile("testdata/adminserver.json")
	must(t, err)
	must(t, json.Unmarshal(text, &real))
	cfg := embed.Config{Dir: t.TempDir(), Logger: slog.New(slog.DiscardHandler)}
	embedkit.Patient(&cfg)
	node, err := embed.Start(cfg)
	must(t, err)
	defer node.Close()
	must(t, node.Ready(t.Context()))
	door, err := gateway.Start(node, gateway.Config{Listen: "127.0.0.1:0"})
	must(t, err)
	defer door.Close()
	h, err := admin.New(node, admin.Options{Authorize: as, ZooKeeper: true, Gateways: []*gateway.Gateway{door}})
	must(t, err)
	client(t, door)
	testkit.Until(t, "the client's last answer", func() bool {
		return strings.Contains(request{path: "/commands/connections", role: "viewer"}.send(h).body, "GETD")
	})
	for alias, name := range real.Names {
		if keys, without := missing[name]; without && keys == nil {
			continue
		}
		a := request{path: "/commands/" + alias, role: "viewer"}.send(h).want(t, 200)
		var v map[string]any
		a.json(t, &v)
		if v["command"] != name {
			t.Errorf("%s: the command is %v, want %s", alias, v["command"], name)
		}
		got, want := keysOf(v, ""), real.Keys[name]
		for _, k := range want {
			if !slices.Contains(got, k) && !slices.Contains(missing[name], k) {
				t.Errorf("%s lacks %s", alias, k)
			}
			if slices.Contains(got, k) && slices.Contains(missing[name], k) {
				t.Errorf("%s has %s, which is listed as missing", alias, k)
			}
		}
		for _, k := range got {
			isCounter := name == "monitor" && slices.Contains(real.Counters, k)
			if !slices.Contains(want, k) && !slices.Contains(more[name], k) && !isCounter {
				t.Errorf("%s has %s, which ZooKeeper has not", alias, k)
			}
		}
	}
	for alias, want := range map[string]string{"watches_by_path": "/e", "dump": "/e", "connections": "GETD"} {
		if a := (request{path: "/commands/" + alias, role: "viewer"}).send(h); !strings.Contains(a.body, want) {
			t.Errorf("%s: %s", alias, a.body)
		}
	}
	// The page asks for the same in its own way.
	w := request{path: "/v1/watches", role: "viewer"}.send(h).want(t, 200)
	if !strings.Contains(w.body, `"clientPaths":1`) || !strings.Contains(w.body, `"paths":["/e"]`) {
		t.Error(w.body)
	}
	// What only a real disk has.
	var status struct {
		Version string
		Disk    struct{ Free, Size, Log, Image uint64 }
	}
	request{path: "/v1/status", role: "viewer"}.send(h).want(t, 200).json(t, &status)
	if d := status.Disk; status.Version == "" || d.Size == 0 || d.Free > d.Size || d.Log == 0 || d.Image == 0 {
		t.Errorf("the status has %+v", status)
	}
	for _, name := range []string{"crst", "srst", "stmk", "nosuch"} {
		request{path: "/commands/" + name, role: "editor"}.send(h).want(t, 404)
	}
	if a := (request{path: "/commands", role: "viewer"}).send(h).want(t, 200); !strings.Contains(a.body, "server_stats") {
		t.Error(a.body)
	}
}

// Without a gateway, and after the end of the node, the commands answer too.
func TestCommands_WithoutAGateway(t *testing.T) {
	inBubble(t, 3, admin.Options{ZooKeeper: true}, func(t *testing.T, ens *embedtest.Ensemble, h http.Handler) {
		ens.TransferLeadership(1)
		all := strings.Fields(request{path: "/commands", role: "viewer"}.send(h).body)
		for _, name := range all {
			request{path: "/commands/" + name, role: "viewer"}.send(h).want(t, 200)
		}
		if a := (request{path: "/commands/leader", role: "viewer"}).send(h); !strings.Contains(a.body, `"is_leader":true`) || !strings.Contains(a.body, `"leader_id":1`) {
			t.Error(a.body)
		}
		ens.Kill(1)
		for _, name := range all {
			request{path: "/commands/" + name, role: "viewer"}.send(h).want(t, 200)
		}
	})
}

// dynamic are objects whose keys are ids and paths.
var dynamic = []string{"expiry_time_to_session_ids", "session_id_to_ephemeral_paths", "session_id_to_watched_paths", "path_to_session_ids", "current_config"}

// keysOf lists the keys of an object and of what is in it.
func keysOf(v map[string]any, prefix string) (keys []string) {
	for _, k := range slices.Sorted(maps.Keys(v)) {
		keys = append(keys, prefix+k)
		switch x := v[k].(type) {
		case map[string]any:
			if !slices.Contains(dynamic, k) {
				keys = append(keys, keysOf(x, prefix+k+".")...)
			}
		case []any:
			if len(x) > 0 {
				if o, ok := x[0].(map[string]any); ok {
					keys = append(keys, keysOf(o, prefix+k+"[].")...)
				}
			}
		}
	}
	return keys
}

// client connects to a gateway, as a client that owns the ephemeral /e and watches it.
func client(t *testing.T, door *gateway.Gateway) {
	t.Helper()
	conn, err := net.Dial("tcp", door.Addr().String())
	must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	hello := wire.ConnectRequest{Timeout: 10_000, Password: make([]byte, 16)}
	frames := hello.AppendFrame(nil)
	for i, o := range []wire.Operation{
		{Op: wire.OpCreate, Path: "/e", Data: []byte("x"), ACL: []wire.ACL{{Perms: wire.PermAll, Scheme: "world", ID: "anyone"}}, Flags: 1},
		{Op: wire.OpGetData, Path: "/e", Watch: true},
	} {
		q := wire.Request{Xid: int32(i + 1), Operation: o}
		frames = q.AppendFrame(frames)
	}
	_, err = conn.Write(frames)
	must(t, err)
	for range 3 {
		_, err := wire.ReadFrame(conn, nil, 1<<20)
		must(t, err)
	}
}
