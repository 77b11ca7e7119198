package embed_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/vivarium-go/vivarium/internal/rank"
	"github.com/vivarium-go/vivarium/internal/testkit/golden"
)

// imports is the house as text: it lists what each room may import. A new edge needs a line here,
// and a reason. The table names third-party packages too, because other people's binaries embed
// this library.
var imports = map[string][]string{
	"tree":    {"internal/rank"},
	"session": {"tree"},
	"watch":   {"tree", "internal/rank"},

	"storage/disk": {"internal/files", "internal/meter", "internal/rank"},
	"storage":      {"storage/disk", "internal/meter", "internal/rank", "github.com/cockroachdb/pebble"},

	"replication":                         {"internal/files", "internal/meter", "internal/rank", "internal/timers", "github.com/lni/dragonboat/v4", "github.com/lni/vfs", "github.com/cespare/xxhash/v2"}, // the types of dragonboat's file system, the checksum of its log
	"replication/transport":               {"internal/certs", "internal/crowd", "internal/meter", "internal/pace", "internal/rank", "internal/service", "github.com/lni/dragonboat/v4"},
	"replication/transport/transporttest": {"internal/rank"}, // for tests

	"engine/ask":        {"engine/outbox", "internal/certs", "replication", "replication/transport", "session", "tree", "golang.org/x/sync"},
	"engine/backups":    {"engine/ask", "engine/backupfile", "engine/forest", "engine/outbox", "engine/replica", "engine/roster", "internal/meter", "session", "storage"},
	"engine/census":     {"engine/forest", "engine/outbox", "engine/replica", "replication", "session", "tree", "watch"},
	"engine/datadir":    {"internal/rank", "replication", "session", "storage", "storage/disk"},
	"engine/entry":      {"engine/ask", "engine/roster", "internal/pace", "internal/service", "replication", "replication/transport", "session"},
	"engine/forest":     {"engine/command", "engine/keeper", "engine/outbox", "engine/replica", "replication", "session", "tree", "watch", "golang.org/x/sync"},
	"engine/governor":   {"engine/ask", "engine/command", "engine/replica", "engine/roster", "engine/steer", "internal/service", "engine/outbox", "replication", "replication/transport", "session", "tree"},
	"engine/identity":   {"engine/command", "engine/datadir", "engine/forest", "engine/roster", "replication", "replication/transport", "session", "storage"},
	"engine/levels":     {"engine/ask", "engine/command", "engine/forest", "engine/outbox", "engine/replica", "engine/roster", "replication", "replication/transport", "session"},
	"engine/peers":      {"engine/forest", "engine/roster", "replication", "replication/transport", "session"},
	"engine/petition":   {"engine/ask", "engine/command", "engine/governor", "engine/outbox", "engine/replica", "engine/roster", "replication", "replication/transport", "session"},
	"engine/presence":   {"engine/ask", "engine/command", "engine/entry", "engine/health", "engine/outbox", "engine/roster", "replication", "replication/transport", "session"},
	"engine/recovery":   {"engine/command", "engine/forest", "engine/replica", "engine/roster", "replication", "session", "storage/disk", "tree"},
	"engine/roster":     {"engine/command", "engine/datadir", "engine/replica", "internal/rank", "replication", "replication/transport", "session"},
	"engine/offline":    {"engine/ask", "engine/backupfile", "engine/command", "engine/datadir", "engine/replica", "internal/certs", "internal/files", "replication", "replication/transport", "session", "storage", "storage/disk", "tree"},
	"engine/backupfile": {"engine/command", "replication", "tree"},
	"engine/claim":      {"tree"},
	"engine/clock":      {},
	"engine/command":    {"tree", "session", "replication", "github.com/cespare/xxhash/v2", "github.com/vmihailenco/msgpack/v5"},
	"engine/outbox":     {"engine/clock", "engine/command", "tree", "session", "replication", "internal/meter", "internal/rank", "internal/timers"},
	"engine/enginetest": {"engine/clock", "engine/command", "session", "replication", "internal/testkit"}, // for tests
	"engine/replica":    {"engine/outbox", "engine/command", "tree", "session", "watch", "storage", "replication", "internal/meter", "internal/pace", "internal/rank"},
	"engine/keeper":     {"engine/claim", "engine/clock", "engine/command", "engine/outbox", "tree", "session", "watch", "replication", "internal/meter", "internal/rank", "internal/timers", "golang.org/x/sync"},
	"engine/health":     {"engine/forest", "engine/replica", "engine/roster", "internal/meter", "internal/pace", "internal/rank", "replication", "replication/transport", "storage/disk"},
	"engine/seeding":    {"engine/backupfile", "engine/command", "engine/outbox", "engine/replica", "internal/service", "replication", "tree"},
	"engine/scheme":     {"internal/lines", "tree"},
	"engine/spread":     {"engine/command", "engine/forest", "engine/roster", "replication"},
	"engine/steer":      {"session"},
	"engine":            {"engine/ask", "engine/backupfile", "engine/datadir", "engine/health", "engine/seeding", "engine/scheme", "engine/backups", "engine/census", "engine/entry", "engine/forest", "engine/governor", "engine/identity", "engine/levels", "engine/peers", "engine/presence", "engine/petition", "engine/recovery", "engine/spread", "engine/roster", "engine/keeper", "engine/replica", "engine/outbox", "engine/clock", "engine/command", "tree", "session", "watch", "storage", "storage/disk", "replication", "replication/transport", "internal/certs", "internal/crowd", "internal/files", "internal/meter", "internal/rank"},

	"internal/certs":        {"internal/rank"},
	"internal/configfile":   {"go.yaml.in/yaml/v3"},
	"internal/crowd":        {"internal/rank"},
	"internal/files":        {},
	"internal/files/memory": {"internal/files"},                  // for tests
	"internal/lines":        {"internal/meter", "internal/rank"}, // the log, and what of the service may hang or panic
	"internal/meter":        {},
	"internal/pace":         {},
	"internal/rank":         {},
	"internal/service":      {},
	"internal/timers":       {},

	// What only tests link, embedtest's users included.
	"internal/testkit":              {},
	"internal/testkit/child":        {"internal/testkit"},
	"internal/testkit/golden":       {"internal/testkit"},
	"internal/testkit/membersflag":  {},
	"internal/testkit/shardsflag":   {},
	"internal/testkit/sessionsflag": {"embed"},
	"internal/testkit/zookeeper":    {"internal/testkit", "internal/testkit/child"},

	"embed/internal/inside": {"engine", "engine/clock", "session", "tree", "watch", "internal/meter"}, // what Node, Session and Op are made of, for embed, claim, embedtest and gateway
	"embed": {"engine", "engine/health", "embed/internal/inside", "tree", "session", "watch", "internal/rank", // tree, session and watch for the vocabulary only
		"embed/internal/sampling", "embed/metrics", "internal/certs", "internal/lines", "internal/meter", "internal/configfile"},
	"embed/internal/sampling": {"embed/metrics", "internal/certs", "internal/meter"},
	"embed/claim":             {"embed", "embed/internal/inside", "engine", "tree"},
	"embed/internal/queue":    {"embed", "embed/claim", "embed/internal/inside", "engine", "internal/meter"}, // the last three to count who holds and who waits
	"embed/internal/sessions": {"embed", "embed/internal/inside"},                                            // the last for the log
	"embed/lock":              {"embed", "embed/claim", "embed/internal/queue", "embed/internal/sessions", "internal/rank"},
	"embed/admin":             {"embed", "embed/audit", "embed/backup", "embed/gateway", "embed/internal/inside", "embed/internal/queue", "embed/lock", "embed/metrics", "engine", "internal/certs", "internal/rank", "tree"}, // engine and tree for reads without a session
	"embed/audit":             {"embed", "internal/files", "internal/meter"},
	"embed/backup":            {"embed", "engine/backupfile", "tree"},
	"embed/backup/schedule":   {"embed", "embed/backup", "embed/internal/queue", "embed/internal/sampling", "embed/internal/sessions", "embed/lock", "embed/metrics", "engine/backupfile", "internal/meter"},
	"embed/barrier":           {"embed", "embed/claim", "embed/internal/queue"},
	"embed/election":          {"embed", "embed/claim", "embed/internal/queue", "embed/internal/sessions", "embed/lock", "internal/rank"},
	"embed/discovery":         {"embed", "embed/group", "embed/value", "embed/view"},
	"embed/group":             {"embed", "embed/claim", "embed/internal/queue", "embed/internal/sessions", "embed/value", "embed/view"},
	"embed/job":               {"embed", "embed/claim", "embed/internal/queue", "embed/internal/sessions", "embed/lock", "golang.org/x/sync"},
	"embed/partition":         {"embed", "embed/claim", "embed/internal/queue", "embed/internal/sessions", "embed/lock", "embed/value", "embed/view"},
	"embed/task":              {"embed", "embed/claim", "embed/internal/queue", "embed/internal/sessions", "embed/lock", "internal/rank"},
	"embed/value":             {"embed", "embed/claim", "embed/internal/queue", "embed/internal/sessions", "embed/lock"},
	"embed/view":              {"embed", "embed/internal/sessions", "embed/value", "internal/rank"},
	"embed/embedtest":         {"embed", "embed/internal/inside", "internal/testkit/membersflag", "internal/testkit/sessionsflag", "internal/testkit/shardsflag", "engine", "engine/clock", "engine/offline", "internal/files", "internal/files/memory", "replication", "replication/transport", "replication/transport/transporttest", "storage/disk"}, // the last two for what can be broken, replication for what keeps a member from stopping

	"embed/metrics":      {},
	"embed/metrics/prom": {"embed/metrics", "github.com/prometheus/client_golang"}, // a module of its own

	"embed/internal/native":     {"embed/internal/inside", "internal/wire", "engine", "tree", "watch"},
	"embed/client":              {"embed", "embed/internal/inside", "embed/internal/native", "internal/lines", "internal/meter", "internal/rank", "internal/service", "internal/wire", "engine", "engine/claim", "engine/clock", "session", "tree", "watch", "golang.org/x/sync"},            // session for the life of one
	"embed/internal/clienttest": {"embed", "embed/client", "embed/gateway", "embed/internal/inside", "engine/clock"},                                                                                                                                                                         // for tests
	"embed/internal/refusals":   {"embed", "embed/internal/inside", "engine", "tree"},                                                                                                                                                                                                        // for tests
	"embed/internal/embedkit":   {"embed", "embed/embedtest", "embed/internal/inside", "embed/lock", "engine", "engine/clock", "internal/files", "internal/files/memory", "internal/testkit", "internal/testkit/sessionsflag", "internal/testkit/shardsflag", "replication", "storage/disk"}, // for tests
	"embed/gateway":             {"embed", "embed/internal/inside", "embed/internal/native", "embed/internal/sampling", "embed/metrics", "internal/certs", "internal/crowd", "internal/meter", "internal/pace", "internal/rank", "internal/service", "internal/wire", "engine", "tree", "watch"},
	"internal/wire":             {},
	"internal/wire/wiretest":    {}, // for tests

	"cmd/vivarium":                   {"cmd/vivarium/internal/shell", "cmd/vivarium/internal/client", "cmd/vivarium/internal/transfer", "cmd/vivarium/internal/zkdir", "embed", "embed/admin", "embed/audit", "embed/backup", "embed/backup/schedule", "embed/gateway", "engine", "engine/backupfile", "engine/command", "engine/offline", "internal/certs", "internal/configfile", "internal/crowd", "internal/wire", "tree"}, // engine for the check of a directory, what is below for a backup that no ensemble made
	"cmd/vivarium/internal/client":   {"internal/wire"},
	"cmd/vivarium/internal/transfer": {"cmd/vivarium/internal/client", "internal/wire", "golang.org/x/sync"},
	"cmd/vivarium/internal/zkdir":    {"tree", "github.com/golang/snappy"},
	"cmd/vivarium/internal/shell":    {"cmd/vivarium/internal/client", "embed", "embed/lock", "internal/wire", "golang.org/x/term"},
}

// pure lists the rooms whose behaviour follows from their arguments alone.
var pure = []string{"tree", "session", "watch", "engine/backupfile", "engine/claim", "engine/steer", "internal/wire"}

const module = "github.com/vivarium-go/vivarium/"

// source is one parsed file of the module.
type source struct {
	dir, name string
	file      *ast.File
}

func (s source) test() bool { return strings.HasSuffix(s.name, "_test.go") }

// sources returns the files of the module without examples and other modules. Nobody may change
// what it returns: all tests share it.
func sources(t *testing.T) (*token.FileSet, []source) {
	t.Helper()
	list, err := parsed()
	if err != nil {
		t.Fatal(err)
	}
	return fileSet, list
}

var fileSet = token.NewFileSet()

// parsed parses the files of sources, once.
var parsed = sync.OnceValues(func() (list []source, err error) {
	err = filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		dir := filepath.ToSlash(strings.TrimPrefix(filepath.Dir(path), ".."+string(filepath.Separator)))
		if d.IsDir() {
			switch {
			case path != ".." && strings.HasPrefix(d.Name(), "."), d.Name() == "testdata", d.Name() == "examples", d.Name() == "bench":
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		file, err := parser.ParseFile(fileSet, path, nil, parser.ParseComments)
		list = append(list, source{dir: dir, name: filepath.Base(path), file: file})
		return err
	})
	return list, err
})

func TestImportsFollowTheTable(t *testing.T) {
	_, list := sources(t)
	seen := make(map[string]map[string]bool)
	for _, s := range list {
		if s.test() {
			continue
		}
		if seen[s.dir] == nil {
			seen[s.dir] = make(map[string]bool)
		}
		for _, imp := range s.file.Imports {
			path := strings.Trim(imp.Path.Value, `"`)
			if first, _, _ := strings.Cut(path, "/"); !strings.Contains(first, ".") {
				continue // standard library
			}
			seen[s.dir][strings.TrimPrefix(path, module)] = true
		}
	}
	for dir, paths := range seen {
		allowed, ok := imports[dir]
		if !ok {
			if hasCode(list, dir) {
				t.Errorf("embed/arch_test.go: the table imports lacks the package %s: add the line %q: {%s},",
					dir, dir, `"`+strings.Join(slices.Sorted(maps.Keys(paths)), `", "`)+`"`)
			}
			continue
		}
		for path := range paths {
			if !slices.ContainsFunc(allowed, func(a string) bool {
				return path == a || strings.Contains(a, ".") && strings.HasPrefix(path, a+"/")
			}) {
				t.Errorf("%s imports %s, which its line in the table imports of embed/arch_test.go does not allow: do without it, or add it there with a reason", dir, path)
			}
		}
	}
	for dir, allowed := range imports {
		for _, a := range allowed {
			if !slices.ContainsFunc(slices.Collect(maps.Keys(seen[dir])), func(p string) bool { return p == a || strings.HasPrefix(p, a+"/") }) {
				t.Errorf("embed/arch_test.go: the table imports lets %s import %s, which it does not: take %[2]s out of the line of %[1]s", dir, a)
			}
		}
	}
}

// hasCode reports whether a folder has more than a doc.go and tests.
func hasCode(list []source, dir string) bool {
	return slices.ContainsFunc(list, func(s source) bool { return s.dir == dir && !s.test() && s.name != "doc.go" })
}

func TestPureRoomsHaveNoClockAndNoGoroutine(t *testing.T) {
	banned := map[string][]string{
		"time":         {"Now", "Since", "Until", "After", "AfterFunc", "Sleep", "NewTimer", "NewTicker", "Tick"},
		"math/rand":    nil, // nil: the whole package
		"math/rand/v2": nil,
		"crypto/rand":  nil,
		"os":           nil,
		"net":          nil,
		"log":          nil,
		"log/slog":     nil,
	}
	fset, list := sources(t)
	for _, s := range list {
		if s.test() || !slices.Contains(pure, s.dir) {
			continue
		}
		for _, imp := range s.file.Imports {
			if names, ok := banned[strings.Trim(imp.Path.Value, `"`)]; ok && names == nil {
				t.Errorf("%s: take the import of %s out: %s is one of the rooms without side effects (pure in embed/arch_test.go)", fset.Position(imp.Pos()), imp.Path.Value, s.dir)
			}
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				t.Errorf("%s: let the caller start the goroutine: %s is one of the rooms without side effects (pure in embed/arch_test.go)", fset.Position(n.Pos()), s.dir)
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok && x.Name == "time" && slices.Contains(banned["time"], n.Sel.Name) {
					t.Errorf("%s: take the time as an argument instead of time.%s: %s is one of the rooms without side effects (pure in embed/arch_test.go)", fset.Position(n.Pos()), n.Sel.Name, s.dir)
				}
			}
			return true
		})
	}
}

func TestEveryPackageHasOneDocFile(t *testing.T) {
	_, list := sources(t)
	docs := make(map[string][]string)
	for _, s := range list {
		if s.test() {
			continue
		}
		docs[s.dir] = append(docs[s.dir], "")
		if s.file.Doc != nil {
			docs[s.dir][len(docs[s.dir])-1] = s.name
		}
	}
	for dir, names := range docs {
		names = slices.DeleteFunc(names, func(n string) bool { return n == "" })
		if len(names) != 1 || names[0] != "doc.go" {
			t.Errorf("%s: the files with a package comment are %v: move it to %[1]s/doc.go, and leave it nowhere else", dir, names)
		}
	}
}

func TestExportedNamesAreDocumented(t *testing.T) {
	fset, list := sources(t)
	for _, s := range list {
		if s.test() {
			continue
		}
		for _, d := range s.file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Name.IsExported() && d.Doc == nil && exportedReceiver(d) {
					t.Errorf("%s: %s has no comment: write one, or do not export it", fset.Position(d.Pos()), d.Name.Name)
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					for _, name := range undocumented(d, spec) {
						t.Errorf("%s: %s has no comment: write one, or do not export it", fset.Position(spec.Pos()), name)
					}
				}
			}
		}
	}
}

func exportedReceiver(d *ast.FuncDecl) bool {
	if d.Recv == nil {
		return true
	}
	typ := d.Recv.List[0].Type
	if star, ok := typ.(*ast.StarExpr); ok {
		typ = star.X
	}
	if generic, ok := typ.(*ast.IndexExpr); ok {
		typ = generic.X
	}
	id, ok := typ.(*ast.Ident)
	return ok && id.IsExported()
}

func undocumented(d *ast.GenDecl, spec ast.Spec) (names []string) {
	switch s := spec.(type) {
	case *ast.TypeSpec:
		if s.Name.IsExported() && s.Doc == nil && d.Doc == nil {
			names = append(names, s.Name.Name)
		}
	case *ast.ValueSpec:
		for _, n := range s.Names {
			if n.IsExported() && s.Doc == nil && s.Comment == nil && d.Doc == nil {
				names = append(names, n.Name)
			}
		}
	}
	return names
}

func TestTestsDoNotSleep(t *testing.T) {
	fset, list := sources(t)
	for _, s := range list {
		if !s.test() {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok && sel.Sel.Name == "Sleep" {
				if x, ok := sel.X.(*ast.Ident); ok && x.Name == "time" {
					t.Errorf("%s: a test sleeps: wait for a condition with testkit.Until, or in a bubble for <-time.After", fset.Position(n.Pos()))
				}
			}
			return true
		})
	}
}

// globalRandom lists the functions of math/rand/v2 and math/rand that draw from the generator that
// all share.
var globalRandom = []string{"ExpFloat64", "Float32", "Float64", "Int", "Int31", "Int31n", "Int32", "Int32N", "Int63", "Int63n", "Int64", "Int64N", "IntN", "Intn", "N", "NormFloat64", "Perm", "Read", "Shuffle", "Uint", "UintN", "Uint32", "Uint32N", "Uint64", "Uint64N"}

// One commit gets one answer by day, so the random choices of a test follow from a seed.
func TestTestsKnowTheirSeed(t *testing.T) {
	fset, list := sources(t)
	for _, s := range list {
		if !s.test() {
			continue
		}
		for _, imp := range s.file.Imports {
			if path := strings.Trim(imp.Path.Value, `"`); path != "math/rand/v2" && path != "math/rand" {
				continue
			}
			name := "rand"
			if imp.Name != nil {
				name = imp.Name.Name
			}
			ast.Inspect(s.file, func(n ast.Node) bool {
				sel, ok := n.(*ast.SelectorExpr)
				if !ok || !slices.Contains(globalRandom, sel.Sel.Name) {
					return true
				}
				if x, ok := sel.X.(*ast.Ident); ok && x.Name == name {
					t.Errorf("%s: %s.%s draws from the global generator, so nobody can repeat the test: draw from testkit.Rand(t) instead, or begin with testkit.Seed(t)", fset.Position(n.Pos()), name, sel.Sel.Name)
				}
				return true
			})
		}
	}
}

// unranked are the rooms whose locks have no place in the order of all locks, see engine/doc.go.
// They are what only tests use, the ranks themselves, and the client with what uses it, which
// run in a process without a node.
var unranked = []string{"cmd/vivarium/internal/client", "cmd/vivarium/internal/shell", "cmd/vivarium/internal/transfer", "embed/embedtest", "embed/internal/embedkit", "embed/internal/refusals", "engine/enginetest", "internal/files/memory", "internal/testkit", "internal/testkit/child", "internal/rank"}

func TestLocksKnowTheirPlace(t *testing.T) {
	fset, list := sources(t)
	used := make(map[string]bool)
	for _, s := range list {
		if s.test() || slices.Contains(unranked, s.dir) {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			switch x, _ := sel.X.(*ast.Ident); {
			case x == nil:
			case x.Name == "rank":
				used[sel.Sel.Name] = true
			case x.Name == "sync" && (sel.Sel.Name == "Mutex" || sel.Sel.Name == "RWMutex"):
				t.Errorf("%s: a lock without a place: use rank.%s, give it a place in internal/rank/order.go and a line in engine/doc.go", fset.Position(n.Pos()), sel.Sel.Name)
			}
			return true
		})
	}
	for _, p := range rank.Order() {
		if !used[p.Type.Name()] {
			t.Errorf("no lock is at the place %s: take %s out of internal/rank/order.go, and its line out of engine/doc.go", p.Name, p.Type.Name())
		}
	}
}

// Each promise in the README has a test of its name.
func TestEveryPromiseHasItsTest(t *testing.T) {
	_, list := sources(t)
	tests := make(map[string]bool)
	for _, s := range list {
		for _, d := range s.file.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && s.test() {
				tests[fn.Name.Name] = true
			}
		}
	}
	readme, err := os.ReadFile(filepath.Join("..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(readme), "| name | promise |\n|---|---|\n")
	table, _, _ = strings.Cut(table, "\n\n")
	rows := strings.Split(table, "\n")
	if len(rows) < 12 {
		t.Errorf("README.md: the table of promises has %d rows, want 12 or more. Its head must be | name | promise |", len(rows))
	}
	for _, row := range rows {
		name := strings.TrimSpace(strings.Split(row+"||", "|")[1])
		if !tests["TestGuarantee_"+name] {
			t.Errorf("README.md promises %s: write TestGuarantee_%[1]s in embed/promisetest, or change the name in the table", name)
		}
	}
}

// TestExportedAPI compares testdata/api.txt with the names that users can write down. After a change,
// run it with -update and read the diff.
func TestExportedAPI(t *testing.T) {
	fset, list := sources(t)
	var lines []string
	for _, s := range list {
		if s.test() || !strings.HasPrefix(s.dir, "embed") || strings.Contains(s.dir, "internal") {
			continue
		}
		for _, d := range s.file.Decls {
			lines = append(lines, exported(fset, s.dir, d)...)
		}
	}
	slices.Sort(lines)
	got := strings.Join(lines, "\n") + "\n"
	golden.Check(t, filepath.Join("testdata", "api.txt"), got)
}

// exported returns a declaration's exported names, one per line.
func exported(fset *token.FileSet, dir string, decl ast.Decl) (lines []string) {
	line := func(format string, args ...any) {
		lines = append(lines, dir+": "+fmt.Sprintf(format, args...))
	}
	text := func(n any) string {
		var b bytes.Buffer
		_ = printer.Fprint(&b, fset, n)
		return strings.Join(strings.Fields(b.String()), " ")
	}
	switch d := decl.(type) {
	case *ast.FuncDecl:
		if d.Name.IsExported() && exportedReceiver(d) {
			line("%s", text(&ast.FuncDecl{Recv: d.Recv, Name: d.Name, Type: d.Type}))
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch s := spec.(type) {
			case *ast.ValueSpec:
				for _, n := range s.Names {
					if n.IsExported() {
						line("%s %s", d.Tok, n.Name)
					}
				}
			case *ast.TypeSpec:
				if !s.Name.IsExported() {
					continue
				}
				st, ok := s.Type.(*ast.StructType)
				if !ok || s.Assign != 0 {
					line("type %s", text(&ast.TypeSpec{Name: s.Name, TypeParams: s.TypeParams, Assign: s.Assign, Type: s.Type}))
					continue
				}
				line("type %s struct", s.Name.Name)
				for _, f := range st.Fields.List {
					for _, n := range f.Names {
						if n.IsExported() {
							line("type %s struct { %s %s }", s.Name.Name, n.Name, text(f.Type))
						}
					}
				}
			}
		}
	}
	return lines
}

// The drawings of the engine show each room once, and a room imports only rooms on lines below its own.
func TestDrawingsOfTheEngine(t *testing.T) {
	rooms := make(map[string]bool)
	for room := range imports {
		if name, is := strings.CutPrefix(room, "engine/"); is && name != "enginetest" {
			rooms[name] = true
		}
	}
	for file, prefix := range map[string]string{"../engine/doc.go": "//\t", "../docs/architecture.md": ""} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		_, drawing, found := strings.Cut(string(text), "\n"+prefix+"engine   ")
		if !found {
			t.Fatalf("%s has no drawing of the engine", file)
		}
		line := make(map[string]int) // from the top
		for i, l := range strings.Split(drawing, "\n")[1:] {
			l, inside := strings.CutPrefix(l, prefix)
			if !inside || l == "" || !rooms[strings.Fields(l)[0]] {
				break
			}
			drawn, _, _ := strings.Cut(l, "   ") // behind it is what they do
			for _, room := range strings.Fields(drawn) {
				if line[room] != 0 || !rooms[room] {
					t.Errorf("%s draws %s, which is no room or was drawn before", file, room)
				}
				line[room] = i + 1
			}
		}
		for room := range rooms {
			if line[room] == 0 {
				t.Errorf("%s does not draw %s", file, room)
			}
			for _, path := range imports["engine/"+room] {
				if below, is := strings.CutPrefix(path, "engine/"); is && line[below] <= line[room] {
					t.Errorf("%s draws %s, which imports %s, not above it", file, room, below)
				}
			}
		}
	}
}
