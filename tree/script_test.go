package tree

import (
	"cmp"
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

// TestScripts runs the scripts in testdata. A script begins with a comment. Its first sentence is
// prose; then it gives ZooKeeper's rule, and the statements of README.md that the script shows.
// Blocks follow: commands, a line of four dashes, their output, and an empty line.
//
// Transactions, also failed ones, have the zxids 1, 2, and so on. Their time is 1000 ms times the
// zxid. The commands are:
//
//	create PATH [data=D] [mode=M] [ttl=T] [acl=L] [session=N]
//	set PATH [data=D] [version=N]         delete PATH [version=N] [czxid=N] [session=N]
//	check PATH [version=N]                setacl PATH [acl=L] [version=N]
//	guard PATH czxid=N                    checkchildren PATH version=N
//	unknown PATH                          lose PATH session=N (only as=system)
//	multi            one transaction of the operations on the indented lines that follow
//	reap PATH [czxid=N] [mzxid=N] [pzxid=N]          by default as it is
//	hold             the next transaction is not published until "publish"
//	publish
//	get PATH         stat PATH            children PATH       before PATH [MATCH...]
//	exists PATH      acl PATH              descendants PATH    mayread L (always through a View)
//	validate PATH [mode=M]
//	mortals          the znodes that may be reaped
//	digest CREDENTIAL
//	dump             every znode in its durable form
//	drain            the znodes changed since the last drain
//	reload [PATH counter=N version=N aversion=N]     a new tree from the durable form, after
//	                                                 one znode in it was changed
//
// Words may be quoted as in Go. With as=ID,ID... the requester has the identities SCHEME:ID, or
// none. With as=system a transaction is the ensemble's own, and with as=remote,ID... a client's.
// Other reads without as= check no
// permission. A list L is entries PERMS:SCHEME:ID separated by commas; it may be empty. Without
// data= the data is nil. With nothing after data= it is empty.
//
// A transaction prints its error, or a line for each operation. Then it prints each change with a
// star, and each subtree over a soft limit with an exclamation mark.
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
	if !ok || !strings.HasPrefix(head, "# ") || !strings.Contains(head, "\n# ZooKeeper: ") || !strings.Contains(head, showsPrefix) {
		t.Fatal("a script needs a head: a sentence of prose, a line \"# ZooKeeper: \" and a line \"# Shows: \"")
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

// A script is the state of one script that is being run.
type script struct {
	t    *testing.T
	tree *Tree
	zxid Zxid
	hold bool
	out  strings.Builder
}

// run runs the commands of a block and returns their output.
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
		ops := []command{c}
		for ; i+1 < len(lines) && strings.HasPrefix(lines[i+1], "  "); i++ {
			ops = append(ops, s.parse(lines[i+1]))
		}
		s.transaction(ops[0], ops[1:])
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

// path returns the command's path, or "/" if it names none.
func (c command) path() string {
	if len(c.words) == 0 {
		return "/"
	}
	return c.words[0]
}

// number returns the value of a key, or def if the key is missing.
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

// mode returns the value of the key "mode".
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
	case "create", "set", "delete", "check", "setacl", "guard", "checkchildren", "lose", "configure", "checkmzxid", "add", "ensure", "checklost", "unknown":
		s.transaction(c, []command{c})
	case "reap":
		s.reap(c)
	case "hold":
		s.hold = true
	case "publish":
		s.tree.Publish()
		s.hold = false
	case "get":
		s.get(c)
	case "stat":
		s.stat(c.path())
	case "children":
		s.children(c)
	case "before":
		s.before(c)
	case "exists":
		s.exists(c)
	case "acl":
		s.acl(c)
	case "descendants":
		s.descendants(c)
	case "mayread":
		s.printf("%v", s.tree.As(s.who(c)).MayRead(s.list(c.path())))
	case "mortals":
		s.mortals()
	case "digest":
		s.printf("%s", Digest(c.path()))
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

// list parses the entries of an ACL.
func (s *script) list(text string) []ACL {
	list := []ACL{}
	for entry := range strings.SplitSeq(text, ",") {
		if entry == "" {
			continue
		}
		words := append(strings.SplitN(entry, ":", 3), "", "")
		perms, err := strconv.ParseInt(words[0], 10, 32)
		s.must(err)
		list = append(list, ACL{Perms(perms), words[1], words[2]})
	}
	return list
}

// who parses the identities of a command.
func (s *script) who(c command) (who []Identity) {
	for word := range strings.SplitSeq(c.keys["as"], ",") {
		if word != "" && word != "system" && word != "remote" {
			scheme, id, _ := strings.Cut(word, ":")
			who = append(who, Identity{scheme, id})
		}
	}
	return who
}

func (s *script) op(c command) Op {
	op := Op{Path: c.path(), Mode: s.mode(c), TTL: s.number(c, "ttl", 0), Version: int32(s.number(c, "version", int64(AnyVersion))),
		Czxid: Zxid(s.number(c, "czxid", 0)), Mzxid: Zxid(s.number(c, "mzxid", 0)),
		Width: Width(s.number(c, "width", 0)), Delta: s.number(c, "delta", 0)}
	if data, ok := c.keys["data"]; ok {
		op.Data = []byte(data)
	}
	if acl, ok := c.keys["acl"]; ok {
		op.ACL = s.list(acl)
	}
	for _, kind := range []OpKind{KindCreate, KindSet, KindDelete, KindCheck, KindSetACL, KindGuard, KindCheckChildren, KindLose, KindConfigure, KindCheckMzxid, KindAdd, KindEnsure, KindCheckLost} {
		if kind.String() == c.verb {
			op.Kind = kind
		}
	}
	return op
}

// header returns the header of the next transaction.
func (s *script) header(c command) Header {
	s.zxid++
	return Header{Zxid: s.zxid, Time: int64(s.zxid) * 1000, Identities: s.who(c), System: c.keys["as"] == "system", Remote: strings.HasPrefix(c.keys["as"], "remote")}
}

func (s *script) transaction(head command, commands []command) {
	h := s.header(head)
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
		case KindCreate, KindEnsure:
			s.printf("%s", cmp.Or(r.Path, "ok"))
		case KindSet:
			s.printf("version=%d", r.Stat.Version)
		case KindAdd:
			s.printf("%d version=%d", r.Value, r.Stat.Version)
		case KindSetACL:
			s.printf("aversion=%d", r.Stat.Aversion)
		default:
			s.printf("ok")
		}
	}
	s.applied()
}

// applied prints what a successful transaction did.
func (s *script) applied() {
	for _, c := range s.tree.Changes() {
		line := fmt.Sprintf("* %v %s", c.Type, c.Path)
		if c.Owner != 0 {
			line += fmt.Sprintf(" of session %d", c.Owner)
		}
		if c.Lost {
			line += " lost"
		}
		if c.ACL != nil {
			line += " acl=" + aclText(c.ACL)
		}
		if c.ParentACL != nil {
			line += " parent=" + aclText(c.ParentACL)
		}
		s.printf("%s", line)
	}
	for _, subtree := range s.tree.Over() {
		s.printf("! %s", subtree)
	}
	if !s.hold {
		s.tree.Publish()
	}
}

func aclText(list []ACL) string {
	words := make([]string, len(list))
	for i, a := range list {
		words[i] = fmt.Sprintf("%d:%s:%s", a.Perms, a.Scheme, a.ID)
	}
	return strings.Join(words, ",")
}

func (s *script) reap(c command) {
	stat, _ := s.tree.Exists(c.path())
	seen := Seen{
		Zxid(s.number(c, "czxid", int64(stat.Czxid))),
		Zxid(s.number(c, "mzxid", int64(stat.Mzxid))),
		Zxid(s.number(c, "pzxid", int64(stat.Pzxid))),
	}
	if err := s.tree.Reap(s.header(c), c.path(), seen); err != nil {
		s.printf("%v", err)
		return
	}
	s.printf("ok")
	s.applied()
}

func (s *script) mortals() {
	for _, m := range mortalsOf(s.tree) {
		s.printf("%s czxid=%d mzxid=%d pzxid=%d ttl=%d used=%v busy=%v", m.Path, m.Czxid, m.Mzxid, m.Pzxid, m.TTL, m.Used, m.Busy)
	}
}

// mortalsOf returns a tree's mortals in path order.
func mortalsOf(t *Tree) (all []Mortal) {
	t.Mortals(func(m Mortal) bool {
		all = append(all, m)
		return true
	})
	slices.SortFunc(all, func(a, b Mortal) int { return strings.Compare(a.Path, b.Path) })
	return all
}

func dataText(data []byte) string {
	if data == nil {
		return "nil"
	}
	return strconv.Quote(string(data))
}

// A reader is the methods that Tree and View have in common.
type reader interface {
	Get(path string) ([]byte, Stat, error)
	Children(path string) ([]string, Stat, error)
	Before(path string, match ...string) (string, bool, error)
}

// as returns the tree, or a View if the command names identities.
func (s *script) as(c command) reader {
	if _, ok := c.keys["as"]; ok {
		return s.tree.As(s.who(c))
	}
	return s.tree
}

func (s *script) get(c command) {
	data, stat, err := s.as(c).Get(c.path())
	if err != nil {
		s.printf("%v", err)
		return
	}
	s.printf("%s version=%d length=%d", dataText(data), stat.Version, stat.DataLength)
}

func (s *script) exists(c command) {
	stat, ok, err := s.tree.As(s.who(c)).Exists(c.path())
	switch {
	case err != nil:
		s.printf("%v", err)
	case !ok:
		s.printf("none")
	default:
		s.printf("czxid=%d", stat.Czxid)
	}
}

func (s *script) acl(c command) {
	list, stat, err := s.tree.As(s.who(c)).ACL(c.path())
	if err != nil {
		s.printf("%v", err)
		return
	}
	s.printf("%s aversion=%d", aclText(list), stat.Aversion)
}

func (s *script) descendants(c command) {
	n, err := s.tree.As(s.who(c)).Descendants(c.path())
	if err != nil {
		s.printf("%v", err)
		return
	}
	s.printf("%d", n)
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

func (s *script) children(c command) {
	names, stat, err := s.as(c).Children(c.path())
	if err != nil {
		s.printf("%v", err)
		return
	}
	s.printf("%q cversion=%d", names, stat.Cversion)
}

func (s *script) before(c command) {
	name, ok, err := s.as(c).Before(c.path(), c.words[1:]...)
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
	line := fmt.Sprintf("%s %s czxid=%d mzxid=%d pzxid=%d version=%d created=%d owner=%d", path, dataText(z.Data), z.Czxid,
		z.Mzxid, z.Pzxid, z.Version, z.Created, z.Owner)
	if z.Aversion != 0 {
		line += fmt.Sprintf(" aversion=%d", z.Aversion)
	}
	if z.ACL != nil {
		line += " acl=" + aclText(z.ACL)
	}
	if z.Container {
		line += " container"
	}
	if z.TTL != 0 {
		line += fmt.Sprintf(" ttl=%d", z.TTL)
	}
	s.printf("%s", line)
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
		z.Aversion = int32(s.number(c, "aversion", int64(z.Aversion)))
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

// Errors that name an operation match the sentinel that they wrap.
func TestMultiErrorUnwraps(t *testing.T) {
	tree := New(nil)
	_, err := tree.Apply(Header{Zxid: 1}, []Op{{Kind: KindCreate, Path: "/a"}, {Kind: KindDelete, Path: "/b"}})
	var multi *MultiError
	if !errors.As(err, &multi) || multi.Index != 1 || multi.Err != ErrNoNode || !errors.Is(err, ErrNoNode) {
		t.Fatalf("got %v", err)
	}
}
