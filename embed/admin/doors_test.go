package admin_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/admin"
	"github.com/vivarium-go/vivarium/embed/backup"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/internal/clienttest"
	"github.com/vivarium-go/vivarium/embed/lock"
)

// A deed is a row of docs/access.md. Each attempt has a path of its own, at which prepare has made what
// the deed is about.
type deed struct {
	prepare func(d *doors, at string)
	// by is the attempt of a session. Nil means that sessions have no such call: then clients ask the
	// admin handler without a token.
	by func(ctx context.Context, s *embed.Session, at string) error
	// asked is the attempt at the admin handler, by its role.
	asked func(role, at string) request
	// node is the attempt of a member's code that needs no session.
	node func(ctx context.Context, n *embed.Node) error
	// after reports what the deed has changed although it may not.
	after func(d *doors, at string) error
}

// doors has what the deeds are tried on.
type doors struct {
	t     *testing.T
	ens   *embedtest.Ensemble
	h     http.Handler
	owner *embed.Session // alice's, of what others have no right to
	held  map[string]*embed.Session
}

func (d *doors) create(s *embed.Session, at string, acl []embed.ACL) {
	d.t.Helper()
	_, _, err := s.CreateWith(d.t.Context(), at, []byte("data"), embed.CreateOptions{ACL: acl})
	must(d.t, err)
}

func open(d *doors, at string)   { d.create(d.owner, at, embed.OpenACL()) }
func others(d *doors, at string) { d.create(d.owner, at, embed.CreatorACL()) }

// unchanged fails unless the data are those of create.
func unchanged(d *doors, at string) error {
	data, stat, err := d.owner.Get(d.t.Context(), at)
	if err == nil && (string(data) != "data" || stat.Version != 0 || stat.Aversion != 0) {
		err = fmt.Errorf("it is %q of version %d", data, stat.Version)
	}
	return err
}

var (
	jsonType   = map[string]string{"Content-Type": "application/json"}
	anyVersion = map[string]string{"If-Match": "*"}
)

func get(ctx context.Context, s *embed.Session, at string) error {
	_, _, err := s.Get(ctx, at)
	return err
}

func set(ctx context.Context, s *embed.Session, at string) error {
	_, err := s.Set(ctx, at, []byte("changed"), embed.AnyVersion)
	return err
}

func setACL(ctx context.Context, s *embed.Session, at string) error {
	_, err := s.SetACL(ctx, at, []embed.ACL{{Perms: embed.PermAll, Scheme: "world", ID: "anyone"}}, embed.AnyVersion)
	return err
}

func askedToRead(role, at string) request {
	if role == "backup" {
		return request{path: "/v1/export" + query("path", at)}
	}
	return request{path: znode(at)}
}

func askedToSet(_, at string) request {
	return request{method: "PUT", path: znode(at), body: "changed", header: anyVersion}
}

func askedToSetACL(_, at string) request {
	return request{method: "PUT", path: "/v1/acl" + query("path", at, "aversion", "-1"), body: `{"acl":[{"perms":"cdrwa","scheme":"world","id":"anyone"}]}`, header: jsonType}
}

// posted asks for a change by a body, in which AT is the path.
func posted(path, body string) func(role, at string) request {
	return func(_, at string) request {
		return request{method: "POST", path: path, body: strings.ReplaceAll(body, "AT", at), header: jsonType}
	}
}

// got asks for something to be shown.
func got(path string) func(role, at string) request {
	return func(string, string) request { return request{path: path} }
}

const contender = "/lock-0000000001" // below a path: only the name of one

// deeds are the rows by what they say.
var deeds = map[string]deed{
	"read data that its ACL opens to all":  {prepare: open, by: get, asked: askedToRead},
	"read data of others":                  {prepare: others, by: get, asked: askedToRead},
	"write data that its ACL opens to all": {prepare: open, by: set, asked: askedToSet},
	"write data of others":                 {prepare: others, by: set, asked: askedToSet, after: unchanged},
	"set an ACL that opens it to all":      {prepare: open, by: setACL, asked: askedToSetACL},
	"set an ACL of others":                 {prepare: others, by: setACL, asked: askedToSetACL, after: unchanged},
	"delete what is open to all": {
		prepare: open,
		by: func(ctx context.Context, s *embed.Session, at string) error {
			return s.Delete(ctx, at, embed.AnyVersion)
		},
		asked: func(_, at string) request {
			return request{method: "DELETE", path: znode(at), header: anyVersion}
		},
	},
	"create znodes out of a backup": {
		by: func(ctx context.Context, s *embed.Session, at string) error {
			_, err := backup.Import(ctx, backup.Session(s), backup.Lines(strings.NewReader(line(at))), backup.Options{})
			return err
		},
		asked: func(_, at string) request {
			return request{method: "POST", path: "/v1/import", body: line(at), header: map[string]string{"Content-Type": "application/x-ndjson"}}
		},
	},
	"limit the subtree of others by a quota": {
		prepare: others,
		by:      func(ctx context.Context, s *embed.Session, at string) error { return createAt(ctx, s, limits(at)) },
		asked:   func(_, at string) request { return createRequest(limits(at)) },
		after:   unchanged,
	},
	"write what steers the ensemble, below `/zookeeper/vivarium`": {
		by:    func(ctx context.Context, s *embed.Session, at string) error { return createAt(ctx, s, steering(at)) },
		asked: func(_, at string) request { return createRequest(steering(at)) },
	},
	"set the ACL of `/zookeeper`": {
		by:    func(ctx context.Context, s *embed.Session, _ string) error { return setACL(ctx, s, "/zookeeper") },
		asked: func(role, _ string) request { return askedToSetACL(role, "/zookeeper") },
	},
	"write the list of members, `/zookeeper/config`": {
		by:    func(ctx context.Context, s *embed.Session, _ string) error { return set(ctx, s, "/zookeeper/config") },
		asked: func(role, _ string) request { return askedToSet(role, "/zookeeper/config") },
	},
	"ask a holder for its lock, or evict it": {
		prepare: func(d *doors, at string) {
			d.create(d.owner, at, embed.OpenACL())
			_, err := lock.NewMutex(d.owner, at).Lock(d.t.Context())
			must(d.t, err)
		},
		by: func(ctx context.Context, s *embed.Session, at string) error {
			holders, err := lock.Holders(ctx, s, at)
			if err != nil || len(holders) != 1 {
				return fmt.Errorf("%d holders, %w", len(holders), err)
			}
			return errors.Join(lock.Revoke(ctx, s, at), lock.Evict(ctx, s, holders[0].Path))
		},
		asked: posted("/v1/locks/revoke", `{"path":"AT","reason":"x"}`),
	},
	"change by that what only has the name of a lock's contender": {
		prepare: func(d *doors, at string) {
			d.create(d.owner, at, embed.OpenACL())
			d.create(d.owner, at+contender, embed.OpenACL())
		},
		by: func(ctx context.Context, s *embed.Session, at string) error {
			return errors.Join(lock.Revoke(ctx, s, at), lock.Evict(ctx, s, at+contender))
		},
		asked: posted("/v1/locks/evict", `{"contender":"AT`+contender+`","reason":"x"}`),
		after: func(d *doors, at string) error { return unchanged(d, at+contender) },
	},
	"see which sessions and ephemerals there are": {asked: got("/v1/sessions")},
	"read the audit": {asked: got("/v1/audit")},
	"end the session of somebody else": {
		prepare: func(d *doors, at string) {
			s, err := d.ens.Node(1).NewSession(d.t.Context(), embed.SessionOptions{})
			must(d.t, err)
			d.held[at] = s
		},
		asked: posted("/v1/sessions/end", `{"session":"SESSION","reason":"x"}`),
	},
	"transfer the leadership of a shard": {
		prepare: func(d *doors, _ string) { d.ens.TransferLeadership(2) },
		asked:   posted("/v1/leadership", `{"shard":1,"to":1,"reason":"x"}`),
		node: func(_ context.Context, n *embed.Node) error {
			err := n.TransferLeadership(1, 1)
			for ; errors.Is(err, embed.ErrUnavailable); err = n.TransferLeadership(1, 1) {
				<-time.After(time.Second)
			}
			return err
		},
	},
	"take a backup, which has all data": {
		asked: got("/v1/backup"),
		node: func(ctx context.Context, n *embed.Node) error {
			_, err := n.Backup(ctx, io.Discard)
			return err
		},
	},
}

func line(at string) string { return fmt.Sprintf(`{"path":%q,"text":"data"}`+"\n", at) }

func limits(at string) string   { return "/zookeeper/quota" + at + "/zookeeper_limits" }
func steering(at string) string { return "/zookeeper/vivarium" + at }

func createAt(ctx context.Context, s *embed.Session, at string) error {
	_, _, err := s.CreateWith(ctx, at, []byte("countHardLimit=0"), embed.CreateOptions{Parents: true})
	return err
}

func createRequest(at string) request {
	return request{method: "POST", path: znode(at, "parents", "1"), body: "countHardLimit=0"}
}

// ask sends a request as a role; as nobody if it is empty.
func (d *doors) ask(r request, role, at string) string {
	if s := d.held[at]; s != nil {
		r.body = strings.ReplaceAll(r.body, "SESSION", hexOf(s.ID()))
	}
	if r.role = role; role == "" {
		r.role, r.header = "nobody", map[string]string{"As": ""}
	}
	a := r.send(d.h)
	for ; a.status == 503; a = r.send(d.h) { // the transfer of another attempt goes on
		<-time.After(time.Second)
	}
	switch a.status {
	case 200, 201, 202, 204:
		return "yes"
	case 400, 401, 403, 404:
		return "no"
	default:
		return fmt.Sprintf("%d: %s", a.status, a.body)
	}
}

// answerOf says what became of an attempt.
func answerOf(err error) string {
	switch {
	case err == nil:
		return "yes"
	case errors.Is(err, embed.ErrNoAuth), errors.Is(err, embed.ErrInvalidPath):
		return "no"
	}
	return err.Error()
}

// Each cell of the table in docs/access.md is what is answered when it is tried.
func TestDoors(t *testing.T) {
	columns, rows := accessTable(t)
	for what := range deeds {
		if rows[what] == nil {
			t.Errorf("docs/access.md lacks a row: %s", what)
		}
	}
	inBubble(t, 3, admin.Options{Audit: t.TempDir()}, func(t *testing.T, ens *embedtest.Ensemble, h http.Handler) {
		ens.TransferLeadership(1)
		user := func(name string) embed.SessionOptions {
			return embed.SessionOptions{Auth: []embed.Auth{{Scheme: "digest", Credential: []byte(name + ":secret")}}}
		}
		d := &doors{t: t, ens: ens, h: h, owner: ens.Session(1, user("alice")), held: make(map[string]*embed.Session)}
		clients, end, err := clienttest.Over(ens.Node(1), func(ctx context.Context) (net.Conn, error) { return ens.Dial(ctx, 1) })
		must(t, err)
		defer end()
		anonymous, err := clients.NewSession(t.Context(), embed.SessionOptions{})
		must(t, err)
		carol, err := clients.NewSession(t.Context(), user("carol"))
		must(t, err)
		d.create(carol, "/carol", embed.CreatorACL())
		sessions := map[string]*embed.Session{"anonymous client": anonymous, "client with rights elsewhere": carol, "member": ens.Session(1, embed.SessionOptions{})}

		n := 0
		for what, cells := range rows {
			deed, ok := deeds[what]
			if !ok {
				t.Errorf("nothing tries: %s", what)
				continue
			}
			for i, who := range columns {
				n++
				at := fmt.Sprintf("/doors-%d", n)
				if deed.prepare != nil {
					deed.prepare(d, at)
				}
				got := d.try(deed, who, sessions[who], at)
				if got != cells[i] {
					t.Errorf("%s, by %s: %s, but the table says %s", what, who, got, cells[i])
				}
				if deed.after != nil {
					if err := deed.after(d, at); err != nil {
						t.Errorf("%s, by %s: %v", what, who, err)
					}
				}
			}
		}
	})
}

// try makes one attempt.
func (d *doors) try(deed deed, who string, s *embed.Session, at string) string {
	switch {
	case s == nil: // a role
		return d.ask(deed.asked(who, at), who, at)
	case deed.by != nil:
		if _, err := s.Sync(d.t.Context(), "/"); err != nil {
			return err.Error()
		}
		return answerOf(deed.by(d.t.Context(), s, at))
	case who != "member":
		return d.ask(deed.asked(who, at), "", at)
	case deed.node != nil:
		return answerOf(deed.node(d.t.Context(), d.ens.Node(1)))
	}
	return "–"
}

// accessTable returns the columns and the rows of the table.
func accessTable(t *testing.T) (columns []string, rows map[string][]string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/access.md")
	must(t, err)
	rows = make(map[string][]string)
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if !strings.HasPrefix(line, "| ") {
			continue
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if columns == nil {
			columns = cells[1:]
			continue
		}
		if len(cells) != len(columns)+1 {
			t.Fatalf("docs/access.md: %s", line)
		}
		rows[cells[0]] = cells[1:]
	}
	want := []string{"anonymous client", "client with rights elsewhere", "viewer", "operator", "editor", "backup", "member"}
	if !slices.Equal(columns, want) {
		t.Fatalf("docs/access.md has the columns %q, want %q", columns, want)
	}
	return columns, rows
}
