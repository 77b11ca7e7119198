package tree

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "replace what the scripts expect by what they give")

// TestScripts runs the scripts in testdata. A script is a comment that opens with a sentence of prose and cites the rule
// it is about, then blocks: commands, a line of four dashes, what they print, an empty line. Transactions take the zxids
// 1, 2, ..., failed ones too, and happen at 1000 ms times the zxid. The commands:
//
//	create PATH [data=D] [mode=M] [session=N]   set PATH [data=D] [version=N]
//	delete PATH [version=N]                     check PATH [version=N]
//	multi          one transaction of the operations on the indented lines that follow
//	hold           the next transaction is not published until "publish"
//	publish
//	get PATH       stat PATH       children PATH       before PATH [MATCH...]       validate PATH [mode=M]
//	dump           every znode in its durable form
//	drain          what was touched since the last drain
//	reload [PATH counter=N version=N]    a new tree of this one's durable form, one znode of it changed before
//
// Words may be quoted as in Go. Without data= the data is nil, with nothing after it empty. A transaction prints a line
// for each operation or its error, and after each line that changed something what changed, with a star.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) { runScript(t, file) })
	}
}

func runScript(t *testing.T, file string) {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	head, blocks, ok := strings.Cut(string(text), "\n\n")
	if !ok || !strings.HasPrefix(head, "# ") || !strings.Contains(head, "# ZooKeeper: ") {
		t.Fatal("a script opens with a sentence of prose and cites ZooKeeper's rule")
	}
	s := &script{t: t, tree: New(nil)}
	out := head + "\n"
	for _, block := range strings.Split(strings.TrimRight(blocks, "\n"), "\n\n") {
		commands, want, ok := strings.Cut(block+"\n", "----\n")
		if !ok {
			t.Fatalf("block without dashes:\n%s", block)
		}
		got := s.run(commands)
		if got != want && !*rewrite {
			t.Errorf("%s----\nprinted\n%swant\n%s", commands, got, want)
		}
		if err := s.tree.check(); err != nil {
			t.Fatalf("%safterwards: %v", commands, err)
		}
		out += "\n" + commands + "----\n" + got
	}
	if *rewrite {
		if err := os.WriteFile(file, []byte(out), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// A script is one being run.
type script struct {
	t    *testing.T
	tree *Tree
	zxid Zxid
	hold bool
	out  strings.Builder
}

// run runs the commands of a block and returns what they print.
func (s *script) run(commands string) string {
	s.out.Reset()
	lines := strings.Split(strings.TrimSpace(commands), "\n")
	for i := 0; i < len(lines); i++ {
		if strings.HasPrefix(lines[i], "#") {
			continue
		}
		c := s.parse(lines[i])
		if c.verb != "multi" {
			s.command(c)
			continue
		}
		var ops []command
		for ; i+1 < len(lines) && strings.HasPrefix(lines[i+1], "  "); i++ {
			ops = append(ops, s.parse(lines[i+1]))
		}
		s.transaction(ops...)
	}
	return s.out.String()
}

// A command is a line of a script: a verb, words and key=value pairs.
type command struct {
	verb  string
	words []string
	keys  map[string]string
}

func (s *script) parse(line string) command {
	c := command{keys: map[string]string{}}
	for rest := strings.TrimSpace(line); rest != ""; rest = strings.TrimSpace(rest) {
		word, more, _ := strings.Cut(rest, " ")
		if quoted, err := strconv.QuotedPrefix(rest); err == nil {
			more = rest[len(quoted):]
			word, _ = strconv.Unquote(quoted)
			c.words = append(c.words, word)
		} else if key, value, ok := strings.Cut(word, "="); ok {
			c.keys[key] = value
		} else if c.verb == "" {
			c.verb = word
		} else {
			c.words = append(c.words, word)
		}
		rest = more
	}
	return c
}

// path is the command's path, "/" if it names none.
func (c command) path() string {
	if len(c.words) == 0 {
		return "/"
	}
	return c.words[0]
}

// number is the value of a key, or def.
func (s *script) number(c command, key string, def int64) int64 {
	text, ok := c.keys[key]
	if !ok {
		return def
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}

// mode is the value of the key "mode".
func (s *script) mode(c command) CreateMode {
	text, ok := c.keys["mode"]
	if !ok {
		return Persistent
	}
	for m := Persistent; m <= SequentialTTL; m++ {
		if m.String() == text {
			return m
		}
	}
	return CreateMode(s.number(c, "mode", 0))
}

func (s *script) printf(format string, args ...any) { fmt.Fprintf(&s.out, format+"\n", args...) }

func (s *script) command(c command) {
	switch c.verb {
	case "create", "set", "delete", "check":
		s.transaction(c)
	case "hold":
		s.hold = true
	case "publish":
		s.tree.Publish()
		s.hold = false
	case "get":
		s.get(c.path())
	case "stat":
		s.stat(c.path())
	case "children":
		s.children(c.path())
	case "before":
		s.before(c.path(), c.words[1:])
	case "validate":
		s.validate(c)
	case "dump":
		s.dump()
	case "drain":
		s.drain()
	case "reload":
		s.reload(c)
	default:
		s.t.Fatalf("unknown command %q", c.verb)
	}
}

func (s *script) op(c command) Op {
	op := Op{Path: c.path(), Mode: s.mode(c), Version: int32(s.number(c, "version", int64(AnyVersion)))}
	if data, ok := c.keys["data"]; ok {
		op.Data = []byte(data)
	}
	for _, kind := range []OpKind{KindCreate, KindSet, KindDelete, KindCheck} {
		if kind.String() == c.verb {
			op.Kind = kind
		}
	}
	return op
}

func (s *script) transaction(commands ...command) {
	s.zxid++
	h := Header{Zxid: s.zxid, Time: int64(s.zxid) * 1000}
	ops := make([]Op, 0, len(commands))
	for _, c := range commands {
		ops = append(ops, s.op(c))
		h.Session = max(h.Session, SessionID(s.number(c, "session", 0)))
	}
	results, err := s.tree.Apply(h, ops)
	if err != nil {
		s.printf("%v", err)
		return
	}
	for i, r := range results {
		switch ops[i].Kind {
		case KindCreate:
			s.printf("%s", r.Path)
		case KindSet:
			s.printf("version=%d", r.Stat.Version)
		default:
			s.printf("ok")
		}
	}
	for _, c := range s.tree.Changes() {
		if c.Owner != 0 {
			s.printf("* %v %s of session %d", c.Type, c.Path, c.Owner)
			continue
		}
		s.printf("* %v %s", c.Type, c.Path)
	}
	if !s.hold {
		s.tree.Publish()
	}
}

func dataText(data []byte) string {
	if data == nil {
		return "nil"
	}
	return strconv.Quote(string(data))
}

func (s *script) get(path string) {
	data, stat, err := s.tree.Get(path)
	if err != nil {
		s.printf("%v", err)
		return
	}
	s.printf("%s version=%d length=%d", dataText(data), stat.Version, stat.DataLength)
}

func (s *script) stat(path string) {
	stat, ok := s.tree.Exists(path)
	if !ok {
		s.printf("none")
		return
	}
	s.printf("czxid=%d mzxid=%d pzxid=%d ctime=%d mtime=%d version=%d cversion=%d aversion=%d owner=%d length=%d children=%d",
		stat.Czxid, stat.Mzxid, stat.Pzxid, stat.Ctime.UnixMilli(), stat.Mtime.UnixMilli(), stat.Version, stat.Cversion,
		stat.Aversion, stat.EphemeralOwner, stat.DataLength, stat.NumChildren)
}

func (s *script) children(path string) {
	names, stat, err := s.tree.Children(path)
	if err != nil {
		s.printf("%v", err)
		return
	}
	s.printf("%q cversion=%d", names, stat.Cversion)
}

func (s *script) before(path string, match []string) {
	name, ok, err := s.tree.Before(path, match...)
	switch {
	case err != nil:
		s.printf("%v", err)
	case !ok:
		s.printf("nobody")
	default:
		s.printf("%s", name)
	}
}

func (s *script) validate(c command) {
	err := ValidatePath(c.path())
	if _, ok := c.keys["mode"]; ok {
		err = ValidateCreatePath(c.path(), s.mode(c))
	}
	if err != nil {
		s.printf("%v", err)
		return
	}
	s.printf("ok")
}

func (s *script) printZnode(path string, z Znode) {
	s.printf("%s %s czxid=%d mzxid=%d pzxid=%d version=%d created=%d owner=%d", path, dataText(z.Data), z.Czxid, z.Mzxid,
		z.Pzxid, z.Version, z.Created, z.Owner)
}

func (s *script) dump() {
	s.must(s.tree.Walk(func(path string, z Znode) error {
		s.printZnode(path, z)
		return nil
	}))
}

func (s *script) drain() {
	s.must(s.tree.Drain(func(path string, z Znode, exists bool) error {
		if !exists {
			s.printf("%s gone", path)
			return nil
		}
		s.printZnode(path, z)
		return nil
	}))
}

func (s *script) reload(c command) {
	znodes := map[string]Znode{}
	s.must(s.tree.Walk(func(path string, z Znode) error {
		znodes[path] = z
		return nil
	}))
	if len(c.words) > 0 {
		z := znodes[c.path()]
		z.Created = int32(s.number(c, "counter", int64(z.Created)))
		z.Version = int32(s.number(c, "version", int64(z.Version)))
		znodes[c.path()] = z
	}
	l := NewLoader(nil)
	for _, path := range slices.Sorted(maps.Keys(znodes)) {
		s.must(l.Add(path, znodes[path]))
	}
	tree, err := l.Finish(s.tree.Visible())
	s.must(err)
	s.tree = tree
}

func (s *script) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// Errors that name an operation can be told by the sentinel they wrap.
func TestMultiErrorUnwraps(t *testing.T) {
	tree := New(nil)
	_, err := tree.Apply(Header{Zxid: 1}, []Op{{Kind: KindCreate, Path: "/a"}, {Kind: KindDelete, Path: "/b"}})
	var multi *MultiError
	if !errors.As(err, &multi) || multi.Index != 1 || multi.Err != ErrNoNode || !errors.Is(err, ErrNoNode) {
		t.Fatalf("got %v", err)
	}
}
