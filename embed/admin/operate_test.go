package admin_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/admin"
	"github.com/vivarium-go/vivarium/embed/audit"
	"github.com/vivarium-go/vivarium/embed/backup"
	"github.com/vivarium-go/vivarium/embed/election"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/gateway"
	"github.com/vivarium-go/vivarium/embed/lock"
	"github.com/vivarium-go/vivarium/internal/wire"
)

// order sends an operator's request.
func order(h http.Handler, path, body string) answer {
	return request{method: "POST", path: path, role: "operator", body: body, header: map[string]string{"Content-Type": "application/json"}}.send(h)
}

func TestLocks(t *testing.T) {
	inBubble(t, 3, admin.Options{}, func(t *testing.T, ens *embedtest.Ensemble, h http.Handler) {
		one, two := ens.Session(2, embed.SessionOptions{}), ens.Session(3, embed.SessionOptions{})
		a, err := lock.NewMutex(one, "/locks/a").With(lock.Options{Note: "report"}).Lock(t.Context())
		must(t, err)
		b, err := lock.NewMutex(two, "/locks/b").Lock(t.Context())
		must(t, err)
		ended := make(chan error, 2)
		go func() { _, err := lock.NewMutex(one, "/locks/b").Lock(a.Context()); ended <- err }()
		go func() { _, err := lock.NewMutex(two, "/locks/a").Lock(b.Context()); ended <- err }()

		var list struct {
			Queues []struct {
				Path, Kind       string
				Held, Waiting    int
				Holders, Waiters []struct {
					Path, Session, Note string
					Member              int
				}
			}
			More bool
		}
		ens.Until("both to wait", func() bool {
			list.Queues = nil
			request{path: "/v1/locks" + query("root", "/locks"), role: "viewer"}.send(h).want(t, 200).json(t, &list)
			return len(list.Queues) == 2 && list.Queues[0].Waiting == 1 && list.Queues[1].Waiting == 1
		})
		if q := list.Queues[0]; q.Path != "/locks/a" || q.Kind != "mutex" || q.Holders[0].Note != "report" || q.Holders[0].Member != 2 || q.Waiters[0].Member != 3 {
			t.Errorf("%+v", q)
		}
		list.Queues = nil
		request{path: "/v1/locks" + query("after", "/locks/a"), role: "viewer"}.send(h).want(t, 200).json(t, &list)
		if len(list.Queues) != 1 || list.Queues[0].Path != "/locks/b" {
			t.Errorf("after a: %+v", list)
		}
		request{path: "/v1/locks" + query("root", "/none"), role: "viewer"}.send(h).want(t, 200)
		var graph struct {
			Cycles []struct {
				Certain bool
				Links   []struct{ Waits, Behind struct{ Path string } }
			}
		}
		request{path: "/v1/locks/graph", role: "viewer"}.send(h).want(t, 200).json(t, &graph)
		if len(graph.Cycles) != 1 || !graph.Cycles[0].Certain || len(graph.Cycles[0].Links) != 2 {
			t.Fatalf("%+v", graph)
		}

		order(h, "/v1/locks/revoke", `{"path":"/locks/a"}`).want(t, 400)
		order(h, "/v1/locks/revoke", `{"path":"/locks/none","reason":"x"}`).want(t, 404)
		if a := order(h, "/v1/locks/revoke", `{"path":"/locks/a","reason":"a deadlock"}`).want(t, 200); a.outcome() != "applied" {
			t.Error(a.outcome())
		}
		<-a.Revoked()
		order(h, "/v1/locks/evict", `{"contender":"/locks","reason":"x"}`).want(t, 400)
		order(h, "/v1/locks/evict", `{"contender":"`+graph.Cycles[0].Links[0].Waits.Path+`","reason":"a deadlock"}`).want(t, 200)
		if err := <-ended; !errors.Is(err, embed.ErrDeleted) {
			t.Errorf("the evicted waiter: %v", err)
		}
	})
}

func TestSessions_End(t *testing.T) {
	inBubble(t, 3, admin.Options{}, func(t *testing.T, ens *embedtest.Ensemble, h http.Handler) {
		own, other := ens.Session(1, embed.SessionOptions{Auth: []embed.Auth{{Scheme: "digest", Credential: []byte("alice:secret")}}}), ens.Session(2, embed.SessionOptions{})
		_, err := own.Create(t.Context(), "/e", nil, embed.Ephemeral)
		must(t, err)
		_, err = ens.Session(1, embed.SessionOptions{}).Sync(t.Context(), "/")
		must(t, err)
		var one struct {
			ID, Timeout       string
			Member            int
			Remote            bool
			Identities, Paths []string
			Ephemerals        int
		}
		id := hexOf(own.ID())
		request{path: "/v1/session?id=" + id, role: "viewer"}.send(h).want(t, 200).json(t, &one)
		if one.ID != id || one.Member != 1 || one.Remote || len(one.Paths) != 1 || one.Paths[0] != "/e" || one.Ephemerals != 1 ||
			len(one.Identities) != 1 || one.Identities[0] != "digest:alice" {
			t.Errorf("%+v", one)
		}
		var list struct {
			Sessions []struct{ ID string }
			More     bool
		}
		seen, after := 0, ""
		for more := true; more; more = list.More {
			list.Sessions = nil
			request{path: "/v1/sessions" + query("limit", "1", "after", after), role: "viewer"}.send(h).want(t, 200).json(t, &list)
			seen, after = seen+1, list.Sessions[0].ID
		}
		if seen != 3 {
			t.Errorf("%d sessions one by one, want 3", seen)
		}
		if a := order(h, "/v1/sessions/end", `{"session":"`+hexOf(other.ID())+`","reason":"stuck"}`).want(t, 409); a.outcome() != "refused" || !strings.Contains(a.body, "member 2") {
			t.Errorf("%s %s", a.outcome(), a.body)
		}
		if other.Err() != nil {
			t.Error(other.Err())
		}
		order(h, "/v1/sessions/end", `{"session":"0x777","reason":"stuck"}`).want(t, 404)
		order(h, "/v1/sessions/end", `{"session":"`+id+`"}`).want(t, 400)
		order(h, "/v1/sessions/end", `{"session":"`+id+`","reason":"stuck","path":"/"}`).want(t, 400)
		order(h, "/v1/sessions/end", `{"session":"`+id+`","reason":"stuck"}`).want(t, 200)
		if !errors.Is(own.Err(), embed.ErrSessionClosed) {
			t.Errorf("it goes on: %v", own.Err())
		}
		request{path: znode("/e"), role: "viewer"}.send(h).want(t, 404)
	})
}

// A client's session ends on any member, whichever it is attached to.
func TestSessions_EndOfClients(t *testing.T) {
	inBubble(t, 3, admin.Options{}, func(t *testing.T, ens *embedtest.Ensemble, h http.Handler) {
		for _, at := range []embed.MemberID{1, 2} {
			door, err := gateway.Start(ens.Node(at), gateway.Config{Listen: "127.0.0.1:0"})
			must(t, err)
			defer door.Close()
			conn, err := ens.Dial(t.Context(), at)
			must(t, err)
			hello := wire.ConnectRequest{Timeout: 10_000, Password: make([]byte, 16)}
			_, err = conn.Write(hello.AppendFrame(nil))
			must(t, err)
			frame, err := wire.ReadFrame(conn, nil, 100)
			must(t, err)
			var r wire.ConnectResponse
			must(t, r.Decode(frame))
			_, err = ens.Session(1, embed.SessionOptions{}).Sync(t.Context(), "/")
			must(t, err)
			id := hexOf(embed.SessionID(r.SessionID))
			var one struct{ Remote bool }
			request{path: "/v1/session?id=" + id, role: "viewer"}.send(h).want(t, 200).json(t, &one)
			if !one.Remote {
				t.Errorf("member %d: it is not a client's", at)
			}
			if a := order(h, "/v1/sessions/end", `{"session":"`+id+`","reason":"stuck"}`).want(t, 200); a.outcome() != "applied" {
				t.Errorf("member %d: %s", at, a.outcome())
			}
			request{path: "/v1/session?id=" + id, role: "viewer"}.send(h).want(t, 404)
			if rest, err := io.ReadAll(conn); err != nil || len(rest) > 0 {
				t.Errorf("member %d: its connection: %x %v", at, rest, err)
			}
		}
	})
}

func TestLeadership(t *testing.T) {
	inBubble(t, 3, admin.Options{}, func(t *testing.T, ens *embedtest.Ensemble, h http.Handler) {
		ens.TransferLeadership(1)
		for _, body := range []string{`{"shard":2,"to":2,"reason":"x"}`, `{"shard":-1,"to":2,"reason":"x"}`, `{"shard":1,"to":4,"reason":"x"}`, `{"shard":1,"reason":"x"}`} {
			if a := order(h, "/v1/leadership", body).want(t, 400); a.outcome() != "refused" {
				t.Errorf("%s: %s", body, a.outcome())
			}
		}
		order(h, "/v1/leadership", `{"shard":1,"to":2,"reason":"maintenance"}`).want(t, 202)
		ens.Until("member 2 to lead", func() bool { return ens.Node(1).Status().Shards[0].Leader == 2 })
	})
}

// following runs a follow, and returns its lines until it ends.
func following(ctx context.Context, h http.Handler, path string) *bufio.Reader {
	from, to := io.Pipe()
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, "http://localhost/v1/follow"+query("path", path), nil)
	r.Header.Set("As", "viewer")
	context.AfterFunc(ctx, func() { from.Close() }) // as the connection of a caller that has gone
	go func() {
		h.ServeHTTP(&pipeWriter{to: to, header: http.Header{}}, r)
		to.Close()
	}()
	return bufio.NewReader(from)
}

// A pipeWriter is a http.ResponseWriter whose body can be read meanwhile.
type pipeWriter struct {
	to     *io.PipeWriter
	header http.Header
}

func (w *pipeWriter) Header() http.Header         { return w.header }
func (w *pipeWriter) Write(p []byte) (int, error) { return w.to.Write(p) }
func (w *pipeWriter) WriteHeader(int)             {}
func (w *pipeWriter) Flush()                      {}

func TestFollow(t *testing.T) {
	inBubble(t, 1, admin.Options{}, func(t *testing.T, ens *embedtest.Ensemble, h http.Handler) {
		s := ens.Session(1, embed.SessionOptions{})
		lines := following(t.Context(), h, "/a")
		next := func() (m map[string]string) {
			t.Helper()
			for {
				line, err := lines.ReadBytes('\n')
				must(t, err)
				if len(bytes.TrimSpace(line)) > 0 {
					must(t, json.Unmarshal(line, &m))
					return m
				}
			}
		}
		if m := next(); m["follows"] != "/a" || m["zxid"] == "" {
			t.Errorf("the first line: %v", m)
		}
		_, err := s.Create(t.Context(), "/a", nil, embed.Persistent)
		must(t, err)
		if m := next(); m["type"] != "created" || m["path"] != "/a" || m["zxid"] == "" {
			t.Errorf("created: %v", m)
		}
		_, err = s.Create(t.Context(), "/a/b", nil, embed.Persistent)
		must(t, err)
		_, err = s.Set(t.Context(), "/a/b", nil, 0)
		must(t, err)
		must(t, s.Delete(t.Context(), "/a/b", 1))
		for _, want := range []string{"created", "changed", "deleted"} {
			if m := next(); m["type"] != want || m["path"] != "/a/b" {
				t.Errorf("%s: %v", want, m)
			}
		}
		<-time.After(followBeat + time.Second)
		if line, err := lines.ReadString('\n'); err != nil || line != "\n" {
			t.Errorf("a beat: %q %v", line, err)
		}
		ens.Kill(1)
		if m := next(); m["end"] == "" {
			t.Errorf("the end: %v", m)
		}
		if _, err := lines.ReadString('\n'); err != io.EOF {
			t.Errorf("after the end: %v", err)
		}
	})
}

const followBeat = 15 * time.Second

// A caller that goes away leaves nothing behind, and only so many may follow.
func TestFollow_Bounds(t *testing.T) {
	inBubble(t, 1, admin.Options{}, func(t *testing.T, ens *embedtest.Ensemble, h http.Handler) {
		ctx, leave := context.WithCancel(t.Context())
		for range 64 {
			_, err := following(ctx, h, "/").ReadString('\n')
			must(t, err)
		}
		a := request{path: "/v1/follow?path=/", role: "viewer"}.send(h).want(t, 503)
		if a.header.Get("Retry-After") == "" {
			t.Error(a.header)
		}
		leave()
		synctest.Wait()
		for range 64 {
			_, err := following(t.Context(), h, "/").ReadString('\n')
			must(t, err)
		}
	})
}

func TestBackupExportImport(t *testing.T) {
	inBubble(t, 1, admin.Options{}, func(t *testing.T, ens *embedtest.Ensemble, h http.Handler) {
		request{method: "POST", path: znode("/a/b", "parents", ""), body: "one"}.send(h).want(t, 201)
		request{method: "POST", path: znode("/a/c", "acl", "creator"), role: "editor/alice", body: "secret"}.send(h).want(t, 201)
		saved := request{path: "/v1/backup", role: "backup"}.send(h).want(t, 200)
		info, err := backup.Verify(strings.NewReader(saved.body))
		must(t, err)
		if info.Znodes < 4 || saved.header.Get("Content-Disposition") == "" {
			t.Errorf("%+v %v", info, saved.header)
		}
		lines := request{path: "/v1/export?path=/a", role: "backup"}.send(h).want(t, 200)
		if n := strings.Count(lines.body, "\n"); n != 4 || !strings.Contains(lines.body, "secret") || !strings.HasSuffix(lines.body, "{\"end\":3}\n") {
			t.Errorf("%d lines: %s", n, lines.body)
		}
		request{path: "/v1/export?path=/none", role: "backup"}.send(h).want(t, 404)

		load := func(pairs, kind, body string) answer {
			return request{method: "POST", path: "/v1/import" + pairs, body: body, role: "editor/alice", header: map[string]string{"Content-Type": kind}}.send(h)
		}
		if a := load(query("path", "/a", "as", "/copy"), "application/x-ndjson", lines.body).want(t, 200); a.outcome() != "applied" || !strings.Contains(a.body, `"created":3`) || !strings.Contains(a.body, `"noEnd":false`) {
			t.Errorf("%s %s", a.outcome(), a.body)
		}
		request{path: znode("/copy/b")}.send(h).want(t, 200)
		cut, _, _ := strings.Cut(lines.body, `{"end"`)
		if a := load(query("path", "/a", "as", "/cut"), "application/x-ndjson", cut).want(t, 200); !strings.Contains(a.body, `"noEnd":true`) {
			t.Errorf("lines without an end: %s", a.body)
		}
		if a := load(query("path", "/a", "dryRun", "", "existing", "skip"), "application/octet-stream", saved.body).want(t, 200); a.outcome() != "" || !strings.Contains(a.body, `"existed":3`) {
			t.Errorf("%s %s", a.outcome(), a.body)
		}
		if a := load(query("path", "/a"), "application/octet-stream", saved.body).want(t, 409); a.outcome() != "refused" {
			t.Errorf("%s %s", a.outcome(), a.body)
		}
		if a := load(query("path", "/a", "as", "/part"), "application/x-ndjson", lines.body+"{\n").want(t, 400); a.outcome() != "unknown" && a.outcome() != "refused" {
			t.Errorf("%s %s", a.outcome(), a.body)
		} else if there := (request{path: znode("/part")}).send(h).status == 200; there != (a.outcome() == "unknown") {
			t.Errorf("%s, and it is there: %v", a.outcome(), there)
		}
		load("", "text/plain", "").want(t, 415)
		load(query("existing", "merge"), "application/x-ndjson", "").want(t, 400)
		load("", "application/octet-stream", "no backup").want(t, 400)
	})
}

func TestAudit(t *testing.T) {
	dir := t.TempDir()
	journal, err := audit.Open(audit.Config{Dir: dir})
	must(t, err)
	defer journal.Close()
	at := time.Now().UTC()
	for i := range 5 {
		journal.Record(embed.AuditRecord{Time: at.Add(time.Duration(i) * time.Second), Shard: 1, Zxid: embed.Zxid(i + 1), Op: "set", Path: "/a", Session: 0x1c, Member: 1, Result: "ok"})
	}
	journal.Record(embed.AuditRecord{Time: at, Shard: 1, Zxid: 7, Op: "setacl", Path: "/c", Session: 0x3f, Member: 2, Result: "ok",
		ACL: []embed.ACL{{Perms: embed.PermAll, Scheme: "digest", ID: embed.Digest("alice:secret")}}})
	journal.Record(embed.AuditRecord{Time: at, Shard: 1, Zxid: 9, Op: "delete", Path: "/b", Session: 0x2e, Member: 2, Result: "ok"})
	inBubble(t, 1, admin.Options{Audit: dir}, func(t *testing.T, ens *embedtest.Ensemble, h http.Handler) {
		var found struct {
			Records []struct{ Op, Path, Zxid, Session string }
			More    bool
		}
		request{path: "/v1/audit" + query("path", "/a", "limit", "2"), role: "viewer"}.send(h).want(t, 200).json(t, &found)
		if len(found.Records) != 2 || found.Records[1].Zxid != "0x5" || found.Records[0].Zxid != "0x4" || !found.More {
			t.Errorf("%+v", found)
		}
		found.More = false
		request{path: "/v1/audit" + query("session", "0x2e"), role: "viewer"}.send(h).want(t, 200).json(t, &found)
		if len(found.Records) != 1 || found.Records[0].Op != "delete" || found.More {
			t.Errorf("%+v", found)
		}
		// A viewer is shown no more of a password's hash than who reads the ACL without Admin.
		if a := (request{path: "/v1/audit" + query("path", "/c"), role: "viewer"}).send(h).want(t, 200); !strings.Contains(a.body, `"alice:x"`) {
			t.Error(a.body)
		}
		request{path: "/v1/audit" + query("since", "yesterday"), role: "viewer"}.send(h).want(t, 400)
	})
	inBubble(t, 1, admin.Options{}, func(t *testing.T, ens *embedtest.Ensemble, h http.Handler) {
		request{path: "/v1/audit", role: "viewer"}.send(h).want(t, 404)
	})
}

// Who leads an election cannot be asked to give it up, and nobody is told otherwise.
func TestRevoke_AnElection(t *testing.T) {
	inBubble(t, 1, admin.Options{}, func(t *testing.T, ens *embedtest.Ensemble, h http.Handler) {
		leads, err := election.New(ens.Session(1, embed.SessionOptions{}), "/election").Campaign(t.Context(), nil)
		must(t, err)
		a := request{method: "POST", path: "/v1/locks/revoke", body: `{"path":"/election","reason":"test"}`, header: map[string]string{"Content-Type": "application/json"}}.send(h).want(t, 409)
		if a.outcome() != "refused" {
			t.Error(a.outcome())
		}
		must(t, leads.Resign())
	})
}

// An import that overwrites sets the data and then the ACL. If the second is refused, the first is
// done, so the outcome is not "refused".
func TestImport_HalfOverwritten(t *testing.T) {
	inBubble(t, 1, admin.Options{}, func(t *testing.T, ens *embedtest.Ensemble, h http.Handler) {
		s := ens.Session(1, embed.SessionOptions{})
		_, _, err := s.CreateWith(t.Context(), "/a", []byte("new"), embed.CreateOptions{
			ACL: []embed.ACL{{Perms: embed.PermRead | embed.PermWrite, Scheme: "world", ID: "anyone"}}})
		must(t, err)
		a := request{method: "POST", path: "/v1/import" + query("existing", "overwrite"), body: `{"path":"/a","text":"old"}` + "\n",
			header: map[string]string{"Content-Type": "application/x-ndjson"}}.send(h).want(t, 403)
		if a.outcome() != "unknown" {
			t.Errorf("%s: %s", a.outcome(), a.body)
		}
	})
}

// A follow ends when its grant does.
func TestFollow_EndsWithItsGrant(t *testing.T) {
	var gone atomic.Bool
	authorize := func(r *http.Request) (admin.Grant, error) {
		if gone.Load() {
			return admin.Grant{}, admin.ErrUnauthorized
		}
		return as(r)
	}
	inBubble(t, 1, admin.Options{Authorize: authorize}, func(t *testing.T, ens *embedtest.Ensemble, h http.Handler) {
		time.AfterFunc(time.Minute, func() { gone.Store(true) })
		a := request{path: "/v1/follow" + query("path", "/"), gone: time.Hour}.send(h).want(t, 200)
		if !strings.Contains(a.body, `"end":"not authorised"`) {
			t.Errorf("%s", a.body)
		}
	})
}

// An operator neither overwrites nor deletes data: what revoke and evict touch is a contender, and
// otherwise they refuse.
func TestLocks_OperatorsWriteNoData(t *testing.T) {
	inBubble(t, 1, admin.Options{}, func(t *testing.T, ens *embedtest.Ensemble, h http.Handler) {
		s := ens.Session(1, embed.SessionOptions{})
		for _, at := range []string{"/orders/order-0000000001", "/rows/lock-0000000001"} {
			_, _, err := s.CreateWith(t.Context(), at, []byte("precious"), embed.CreateOptions{Parents: true})
			must(t, err)
			parent, _, _ := strings.Cut(at[1:], "/")
			for path, body := range map[string]string{
				"/v1/locks/revoke": `{"path":"/` + parent + `","reason":"x"}`, "/v1/locks/evict": `{"contender":"` + at + `","reason":"x"}`,
			} {
				if a := order(h, path, body); a.status != 404 && a.status != 400 || a.outcome() != "refused" {
					t.Errorf("%s %s: %d, %s", path, at, a.status, a.outcome())
				}
			}
			if data, stat, err := s.Get(t.Context(), at); err != nil || string(data) != "precious" || stat.Version != 0 {
				t.Errorf("%s: %q, %v", at, data, err)
			}
		}
	})
}
