package embed_test

import (
	"fmt"
	"go/ast"
	"go/token"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/claim"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/internal/embedkit"
	"github.com/vivarium-go/vivarium/engine"
)

// docs/logs.md lists exactly what the source logs: every message with its level and keys.
func TestLogs_AreThoseOfTheDoc(t *testing.T) {
	said, keys := logsOfDoc(t)
	logged := logsOfSource(t)
	for _, message := range slices.Sorted(maps.Keys(logged)) {
		l := logged[message]
		switch s, ok := said[message]; {
		case !ok:
			t.Errorf("docs/logs.md lacks %q, which %s logs: add the row | %s | `%[1]s` | %[4]s | … |", message, l.at, l.level, l.keyList())
		case s.level != l.level || !slices.Equal(s.keys, l.keys):
			t.Errorf("docs/logs.md says %q is logged at %s with %v, but %s logs it at %s with %v: correct its row to | %[5]s | `%[1]s` | %[7]s | … |", message, s.level, s.keys, l.at, l.level, l.keys, l.keyList())
		}
		delete(said, message)
	}
	for message := range said {
		t.Errorf("docs/logs.md has %q, which nothing logs: take its row out", message)
	}
	// The keys in every line of a library, a node or a gateway.
	used := []string{"library", "member", "gateway"}
	for _, l := range logged {
		used = append(used, l.keys...)
	}
	slices.Sort(used)
	if used = slices.Compact(used); !slices.Equal(used, keys) {
		t.Errorf("docs/logs.md: the table of keys lacks the rows %v, and has %v too much", without(used, keys), without(keys, used))
	}
}

// without returns what a list has and others have not.
func without(list, others []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return slices.Contains(others, s) })
}

// A logLine is how a message is logged.
type logLine struct {
	level string
	keys  []string // sorted
	at    string
}

func (l logLine) keyList() string { return "`" + strings.Join(l.keys, "`, `") + "`" }

var (
	lineRow = regexp.MustCompile("^\\| (Debug|Info|Warn|\\*\\*(?:Warn|Error)\\*\\*) \\| `([^`]+)` \\| ([^|]*) \\| [^|]+ \\|$")
	keyRow  = regexp.MustCompile("^\\| `([a-z0-9]+)` \\| [^|]+ \\|$")
	quoted  = regexp.MustCompile("`([a-z0-9]+)`")
)

// logsOfDoc reads the tables of docs/logs.md. Lines to alert on have a bold level: each Error, and
// none below Warn.
func logsOfDoc(t *testing.T) (lines map[string]logLine, keys []string) {
	t.Helper()
	text, err := os.ReadFile("../docs/logs.md")
	must(t, err)
	lines = make(map[string]logLine)
	for row := range strings.Lines(string(text)) {
		row = strings.TrimSpace(row)
		if m := lineRow.FindStringSubmatch(row); m != nil {
			l := logLine{level: strings.Trim(m[1], "*")}
			for _, k := range quoted.FindAllStringSubmatch(m[3], -1) {
				l.keys = append(l.keys, k[1])
			}
			slices.Sort(l.keys)
			lines[m[2]] = l
		} else if m := keyRow.FindStringSubmatch(row); m != nil {
			keys = append(keys, m[1])
		}
	}
	slices.Sort(keys)
	return lines, keys
}

// logsOfSource finds every call of a logger in the library and the server. Examples, benchmarks and
// tests do not count.
func logsOfSource(t *testing.T) map[string]logLine {
	t.Helper()
	lines := make(map[string]logLine)
	fset, list := sources(t)
	for _, src := range list {
		if src.test() {
			continue
		}
		for _, decl := range src.file.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && fn.Body != nil {
				s := reader{t: t, files: fset, lines: lines}
				s.read(fn)
			}
		}
	}
	return lines
}

// passers are files that pass on a message: a library's line, or one that other code composes.
var passers = []string{"storage/store.go", "replication/logger.go", "replication/transport/notices.go", "engine/callbacks.go"}

type reader struct {
	t       *testing.T
	files   *token.FileSet
	lines   map[string]logLine
	notices []noticed // of the function that is being read
}

// noticed is one of the transport's notices.
type noticed struct {
	event string
	peer  bool
}

func (s *reader) read(fn *ast.FuncDecl) {
	ast.Inspect(fn, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CompositeLit:
			s.notice(n)
		case *ast.AssignStmt:
			if lastName(n.Lhs[0]) == "event" && len(s.notices) > 0 { // of a notice
				s.notices = append(s.notices, noticed{literal(n.Rhs[0]), s.notices[len(s.notices)-1].peer})
			}
		}
		return true
	})
	ast.Inspect(fn, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok {
			s.call(call)
		}
		return true
	})
}

// notice records a notice of the transport.
func (s *reader) notice(lit *ast.CompositeLit) {
	if name, ok := lit.Type.(*ast.Ident); !ok || name.Name != "notice" {
		return
	}
	var n noticed
	for _, e := range lit.Elts {
		kv, ok := e.(*ast.KeyValueExpr)
		if !ok {
			return
		}
		switch lastName(kv.Key) {
		case "event":
			n.event = literal(kv.Value)
		case "peer":
			n.peer = true
		}
	}
	s.notices = append(s.notices, n)
}

func (s *reader) call(call *ast.CallExpr) {
	fn, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || len(call.Args) == 0 {
		return
	}
	receiver := strings.ToLower(lastName(fn.X))
	switch name := fn.Sel.Name; {
	case receiver == "notices" && name == "give":
		s.gives(call)
	case receiver == "node" && name == "Tell":
		s.line(call, lastName(call.Args[0]), call.Args[1], call.Args[2:])
	case !strings.HasSuffix(receiver, "log") && !strings.HasSuffix(receiver, "logger"):
	case slices.Contains([]string{"Debug", "Info", "Warn", "Error"}, name):
		s.line(call, name, call.Args[0], call.Args[1:])
	case name == "Log":
		s.line(call, lastName(call.Args[1]), call.Args[2], call.Args[3:])
	}
}

// gives records a call of notices.give, which adds the peer and a count.
func (s *reader) gives(call *ast.CallExpr) {
	notices := s.notices
	if lit, ok := call.Args[1].(*ast.CompositeLit); ok {
		one := reader{}
		one.notice(lit)
		notices = one.notices
	}
	for _, n := range notices {
		keys := append(s.keys(call.Args[2:]), "repeated")
		if n.peer {
			keys = append(keys, "peer")
		}
		s.add(call, lastName(call.Args[0]), n.event, keys)
	}
}

func (s *reader) line(call *ast.CallExpr, level string, message ast.Expr, args []ast.Expr) {
	text := literal(message)
	if text == "" {
		if at := s.files.Position(call.Pos()).Filename; !slices.ContainsFunc(passers, func(p string) bool { return filepath.ToSlash(at) == "../"+p }) {
			s.t.Errorf("%s: the message of the log is no constant: make it one, and log what varies under a key", s.files.Position(call.Pos()))
		}
		return
	}
	s.add(call, level, text, s.keys(args))
}

// keys returns every other argument: the keys.
func (s *reader) keys(args []ast.Expr) (keys []string) {
	for i := 0; i < len(args); i += 2 {
		key := literal(args[i])
		if key == "" {
			s.t.Errorf("%s: a key of the log is no constant: make it one", s.files.Position(args[i].Pos()))
		}
		keys = append(keys, key)
	}
	return keys
}

func (s *reader) add(call *ast.CallExpr, level, message string, keys []string) {
	slices.Sort(keys)
	l := logLine{level: strings.TrimPrefix(level, "Level"), keys: keys, at: s.files.Position(call.Pos()).String()}
	switch level {
	case "expiryLevel": // of a session: Info, or Debug for a remote session
		l.level = "Info"
	case "level": // a refusal: Warn, or Error if it is final
		l.level = "Warn"
	}
	if other, ok := s.lines[message]; ok && (other.level != l.level || !slices.Equal(other.keys, l.keys)) {
		s.t.Errorf("%q is logged at %s and at %s, with other keys or at another level: make them alike, or give one another message", message, other.at, l.at)
	}
	s.lines[message] = l
}

// literal returns the value of a string constant, or nothing if the expression is none.
func literal(e ast.Expr) string {
	if lit, ok := e.(*ast.BasicLit); ok && lit.Kind == token.STRING {
		text, _ := strconv.Unquote(lit.Value)
		return text
	}
	return ""
}

// lastName returns the name of an expression, or of what it selects or calls last.
func lastName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	case *ast.CallExpr:
		return lastName(e.Fun)
	}
	return ""
}

// A member's log tells the member's life. Each event is told once.
func TestLogs_TellTheLifeOfAMember(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log embedkit.Record
		ens := embedtest.New(t, 3, embedtest.Options{
			Logger: slog.New(slog.NewJSONHandler(&log, nil)),
			Config: func(c *embed.Config) { c.Shards, c.Ensemble = 1, "orders" },
		})
		once := func(member embed.MemberID, message string) map[string]any {
			t.Helper()
			until(t, fmt.Sprintf("member %d to say %q", member, message), func() bool { return len(log.Of(member, message)) > 0 })
			lines := log.Of(member, message)
			if len(lines) != 1 {
				t.Errorf("member %d says %q %d times: %v", member, message, len(lines), lines)
			}
			return lines[0]
		}
		for _, id := range ens.Members() {
			l := once(id, "founded")
			if l["ensemble"] != "orders" || fmt.Sprint(l["members"]) != "[1 2 3]" || l["shards"] != 1.0 || len(l["directory"].(string)) != 32 {
				t.Errorf("%v", l)
			}
			if l := once(id, "started"); l["dir"] != ens.Dir(id) || l["start"] != 1.0 || l["version"] == "" {
				t.Errorf("%v", l)
			}
			if l := once(id, "ready"); l["took"] == 0.0 {
				t.Errorf("%v", l)
			}
		}
		ens.TransferLeadership(1)
		until(t, "the change of leader", func() bool {
			lines := log.Of(2, "leader changed")
			return len(lines) > 0 && lines[len(lines)-1]["to"] == 1.0
		})
		for i, l := range log.Of(2, "leader changed") {
			if first := i == 0; l["shard"] != 1.0 || l["term"] == 0.0 || (l["from"] == 0.0) != first {
				t.Errorf("change %d: %v", i, l)
			}
		}

		const timeout = 5 * time.Second
		s := ens.Session(2, embed.SessionOptions{Timeout: timeout})
		made, err := claim.New(bounded(t), s, embed.OpCreate("/claim", nil, embed.Ephemeral))
		must(t, err)
		_, err = made.Created(bounded(t))
		must(t, err)
		_, err = made.Hold(false)
		must(t, err)
		_, err = s.Watch(bounded(t), "/claim", embed.WatchOnce)
		must(t, err)
		ens.Isolate(2)
		quorumLines := func() []map[string]any { return log.Of(2, "no quorum", "the quorum is back") }
		until(t, "member 2 to log that it has no quorum", func() bool { return len(quorumLines())%2 == 1 })
		if l := once(2, "session expired"); l["session"] != float64(s.ID()) || l["claims"] != 1.0 || l["watches"] != 1.0 || l["timeout"] != float64(timeout) {
			t.Errorf("%v", l)
		}
		ens.HealAll()
		var lines []map[string]any
		until(t, "member 2 to log that it has a quorum", func() bool { lines = quorumLines(); return len(lines)%2 == 0 })
		// Each loss is told once, and so is its end.
		for i, l := range lines {
			if l["shard"] != 1.0 || (l["msg"] == "no quorum") != (i%2 == 0) {
				t.Errorf("line %d about the quorum: %v", i, l)
			}
			if l["msg"] == "no quorum" {
				if cause, _ := l["cause"].(string); l["level"] != "WARN" || cause == "" {
					t.Errorf("%v", l)
				}
			} else if took := l["took"].(float64); took < float64(engine.LongestElection(embedtest.DefaultTick)) {
				t.Errorf("%v", l)
			}
		}
		ens.Kill(3)
		if l := once(3, "node failed"); l["cause"] != "killed" {
			t.Errorf("%v", l)
		}
		ens.Restart(3)
		ens.Stop(2)
		once(2, "closing")
		if lines := log.Of(3, "started"); len(lines) != 2 || lines[1]["start"] != 2.0 || len(log.Of(3, "founded")) != 1 {
			t.Errorf("%v", lines)
		}
	})
}

// The leader says once that nobody reaches a new member at its Advertise, and what to do. Once the
// address is right, the member joins.
func TestLogs_TellOfAnAddressThatNobodyReaches(t *testing.T) {
	t.Parallel()
	var log embedkit.Record
	synctest.Test(t, func(t *testing.T) {
		var wrong atomic.Bool
		ens := embedtest.New(t, 1, embedtest.Options{
			Logger: slog.New(slog.NewJSONHandler(&log, nil)),
			Config: func(c *embed.Config) {
				c.Tick = 100 * time.Millisecond
				if wrong.Load() && c.ID == 0 {
					c.Advertise = "nowhere.test:1"
				}
			},
		})
		embedkit.Founded(ens)
		told := func() []map[string]any {
			return log.Of(1, "a new member is not reached where it says that it is: check its Config.Advertise")
		}
		embedkit.Joined(ens, 1)
		<-time.After(time.Minute)
		if lines := told(); len(lines) != 0 {
			t.Errorf("of a member that is reached: %v", lines)
		}
		wrong.Store(true)
		ens.Join()
		ens.Until("the warning", func() bool { return len(told()) > 0 })
		<-time.After(5 * time.Minute)
		lines := told()
		if cause, _ := lines[0]["cause"].(string); len(lines) != 1 || lines[0]["peer"] != 3.0 || lines[0]["address"] != "nowhere.test:1" || lines[0]["level"] != "WARN" || cause == "" {
			t.Errorf("%v", lines)
		}
		wrong.Store(false)
		ens.Kill(3)
		ens.Restart(3)
		ens.Ready(3)
		if lines := told(); len(lines) != 1 {
			t.Errorf("%v", lines)
		}
	})
}
