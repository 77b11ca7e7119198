package session

import (
	"encoding/hex"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/internal/testkit/golden"
	"github.com/vivarium-go/vivarium/tree"
)

func TestScripts(t *testing.T) {
	golden.Scripts(t, "testdata/table/*.txt", func(t *testing.T) func(string) string {
		s := &tableScript{table: NewTable()}
		return func(line string) string { return s.run(parseCommand(t, line)) }
	})
	golden.Scripts(t, "testdata/life/*.txt", func(t *testing.T) func(string) string {
		s := new(lifeScript)
		return func(line string) string { return s.run(parseCommand(t, line)) }
	})
}

// command is one line of a script: a word, then name=value pairs and bare words.
type command struct {
	t    *testing.T
	line string
	word string
	args map[string]string
	rest []string
}

func parseCommand(t *testing.T, line string) command {
	fields := strings.Fields(line)
	c := command{t: t, line: line, word: fields[0], args: make(map[string]string)}
	for _, f := range fields[1:] {
		if k, v, ok := strings.Cut(f, "="); ok {
			c.args[k] = v
		} else {
			c.rest = append(c.rest, f)
		}
	}
	return c
}

func (c command) num(name string) uint64 {
	n, err := strconv.ParseUint(c.args[name], 10, 64)
	if err != nil {
		c.t.Fatalf("%s: %s: %v", c.line, name, err)
	}
	return n
}

// opt returns the number of an argument, or zero if the line lacks it.
func (c command) opt(name string) uint64 {
	if _, ok := c.args[name]; !ok {
		return 0
	}
	return c.num(name)
}

// flag reports whether a line says name=yes.
func (c command) flag(name string) bool { return c.args[name] == "yes" }

func (c command) id() tree.SessionID { return tree.SessionID(c.num("id")) }
func (c command) member() MemberID   { return MemberID(c.num("m")) }

func (c command) password() (p [16]byte) {
	copy(p[:], c.args["password"])
	return p
}

// identities returns the identities of a line's "as".
func (c command) identities() []tree.Identity {
	if as, ok := c.args["as"]; ok {
		return []tree.Identity{{Scheme: "digest", ID: as}}
	}
	return nil
}

func (c command) time(name string) time.Duration {
	d, err := time.ParseDuration(c.args[name])
	if err != nil {
		c.t.Fatalf("%s: %s: %v", c.line, name, err)
	}
	return d
}

// tableScript runs the scripts of testdata/table.
type tableScript struct {
	table *Table
	store image
}

func (s *tableScript) run(c command) string {
	answer := s.answer(c)
	if err := s.table.Verify(); err != nil {
		c.t.Errorf("after %q: %v", c.line, err)
	}
	return answer
}

func (s *tableScript) answer(c command) string {
	switch c.word {
	case "register":
		return s.register(c)
	case "accept":
		return s.table.Accept(MemberID(c.num("m")), c.num("start"), c.num("seq")).String()
	case "silence":
		step := Step{MemberID(c.num("m")), c.num("start"), c.num("seq"), c.num("step")}
		if !s.table.Silence(step, c.time("d")) {
			return "ignored"
		}
		o, _ := s.table.Origin(step.Member)
		return fmt.Sprintf("silence=%v", o.Silence)
	case "next":
		step, d, ok := s.table.NextStep(MemberID(c.num("m")))
		if !ok {
			return "nothing to measure"
		}
		return fmt.Sprintf("start=%d seq=%d step=%d d=%v", step.Start, step.LastSeq, step.Number, d)
	case "open":
		return textOf(s.table.Open(c.id(), c.password(), c.time("timeout"), c.member(), tree.Zxid(c.opt("zxid")), c.identities()))
	case "reattach":
		return textOf(s.table.Reattach(c.id(), c.password(), c.time("timeout"), c.member(), tree.Zxid(c.num("zxid")), c.identities()))
	case "identities":
		return textOf(s.table.SetIdentities(c.id(), c.member(), c.identities()))
	case "attachment":
		return textOf(s.table.CheckAttachment(c.id(), c.member(), tree.Zxid(c.opt("attached"))))
	case "record":
		return s.record(c)
	case "addshard":
		return textOf(s.table.AddShard(c.id(), c.member(), uint32(c.num("shard"))))
	case "introduce":
		return textOf(s.table.Introduce(c.id(), c.time("timeout"), c.member(), tree.Zxid(c.opt("attached")), c.identities()))
	case "purge":
		return fmt.Sprint("nothing=", s.table.Purge(c.id(), c.former(), tree.Zxid(c.num("ended")), c.flag("lost")))
	case "acknowledge":
		s.table.AcknowledgeEnds(c.member(), tree.Zxid(c.num("home")))
		return "ok"
	case "retire":
		s.table.Retire(c.member())
		return "ok"
	case "purged":
		s.table.Purged(c.id(), uint32(c.num("shard")))
		return "ok"
	case "usable":
		return textOf(s.table.Usable(tree.SessionID(c.num("id")), MemberID(c.num("m"))))
	case "due":
		return fmt.Sprint(s.table.Due())
	case "close":
		return strconv.FormatBool(s.table.Close(c.id(), tree.Zxid(c.opt("ended")), c.flag("lost")))
	case "lost":
		return fmt.Sprint(s.table.Lost(c.id()))
	case "min":
		d, ok := s.table.MinTimeout(MemberID(c.num("m")))
		return fmt.Sprint(d, " ", ok)
	case "created", "deleted", "changed", "lingers":
		s.track(c)
		return fmt.Sprint(s.table.Ephemerals(tree.SessionID(c.num("id"))))
	case "origins":
		return s.origins()
	case "restart":
		s.store.drain(c.t, s.table)
		s.table = s.store.load(c.t, s.table)
		return "ok"
	}
	c.t.Fatalf("%s: no such command", c.line)
	return ""
}

// former returns the incarnations that the bare words of a line give as member.start.
func (c command) former() (list []Incarnation) {
	for _, word := range c.rest {
		var i Incarnation
		if _, err := fmt.Sscanf(word, "%d.%d", &i.Member, &i.Start); err != nil {
			c.t.Fatalf("%s: %v", c.line, err)
		}
		list = append(list, i)
	}
	return list
}

func (s *tableScript) record(c command) string {
	r, open := s.table.Get(c.id())
	x, ended := s.table.ended[c.id()]
	switch {
	case open:
		return fmt.Sprintf("m=%d timeout=%v attached=%d as=%v closing=%v shards=%v former=%v", r.Origin, r.Timeout, r.Attached, r.Identities, r.Closing, r.Shards, r.Former)
	case ended:
		text := fmt.Sprintf("ended=%d shards=%v former=%v", x.zxid, x.shards, x.former)
		if x.lost {
			text += " lost"
		}
		return text
	}
	return "none"
}

func (s *tableScript) register(c command) string {
	n := Origin{Member: MemberID(c.num("m")), Start: c.num("start")}
	copy(n.Directory[:], c.args["dir"])
	copy(n.Digest[:], c.args["ensemble"])
	ended, err := s.table.Register(n)
	if err != nil {
		for _, refusal := range []error{ErrRetired, ErrOlderStart, ErrOtherDirectory, ErrOtherFounding} {
			if errors.Is(err, refusal) {
				return refusal.Error()
			}
		}
		c.t.Fatal(err)
	}
	return fmt.Sprint("ends ", ended)
}

func (s *tableScript) track(c command) {
	types := map[string]tree.ChangeType{"created": tree.Created, "deleted": tree.Deleted, "changed": tree.DataChanged, "lingers": tree.DataChanged}
	var changes []tree.Change
	for _, path := range c.rest {
		changes = append(changes, tree.Change{Type: types[c.word], Path: path, Owner: tree.SessionID(c.num("id")), Lost: c.word == "lingers"})
	}
	s.table.Track(changes)
}

func (s *tableScript) origins() string {
	var lines []string
	for _, o := range s.table.Origins() {
		lines = append(lines, fmt.Sprintf("m=%d start=%d dir=%s seq=%d step=%d silence=%v", o.Member, o.Start,
			strings.TrimRight(string(o.Directory[:]), "\x00"), o.LastSeq, o.Steps, o.Silence))
	}
	return strings.Join(lines, "\n")
}

func textOf(err error) string {
	if err != nil {
		return err.Error()
	}
	return "ok"
}

// The error of a refused Register names both values for the node's operator.
func TestRegisterNamesBothValues(t *testing.T) {
	table := NewTable()
	first := Origin{Member: 3, Start: 9, Directory: [16]byte{0xaa}, Digest: [32]byte{0xcc}}
	if _, err := table.Register(first); err != nil {
		t.Fatal(err)
	}
	older, moved, foreign := first, first, first
	older.Start = 7
	moved.Directory = [16]byte{0xbb}
	foreign.Digest = [32]byte{0xdd}
	foreign.Member = 4
	for _, c := range []struct {
		name   string
		origin Origin
		want   error
		values []string
	}{
		{"older", older, ErrOlderStart, []string{"member 3", "7", "9"}},
		{"moved", moved, ErrOtherDirectory, []string{"member 3", hex.EncodeToString(moved.Directory[:]), hex.EncodeToString(first.Directory[:])}},
		{"foreign", foreign, ErrOtherFounding, []string{"member 4", hex.EncodeToString(foreign.Digest[:]), hex.EncodeToString(first.Digest[:])}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := table.Register(c.origin)
			if !errors.Is(err, c.want) {
				t.Fatalf("got %v", err)
			}
			for _, v := range c.values {
				if !strings.Contains(err.Error(), v) {
					t.Errorf("%q does not say %s", err, v)
				}
			}
			if got := table.Origins(); len(got) != 1 || !reflect.DeepEqual(got[0], first) {
				t.Errorf("a refused Register left %+v", got)
			}
		})
	}
}

// lifeScript runs the scripts of testdata/life.
type lifeScript struct{ life *Life }

func (s *lifeScript) run(c command) string {
	switch c.word {
	case "life":
		s.life = NewLife(c.time("timeout"), c.time("proved"))
		return s.show(s.life.State(), false)
	case "look":
		return s.show(s.life.Look(c.time("now")))
	case "proved":
		return s.show(s.life.Proved(c.time("now"), c.time("sent")))
	case "extend":
		s.life.Extend(c.time("sent"))
		return s.show(s.life.State(), false)
	case "suspend":
		return s.show(s.life.Suspend(c.time("now")))
	case "jump":
		return s.show(s.life.Jump(c.time("now"), c.time("by")))
	case "expire":
		changed := s.life.Expire()
		return s.show(s.life.State(), changed)
	case "close":
		changed := s.life.Close()
		return s.show(s.life.State(), changed)
	}
	c.t.Fatalf("%s: no such command", c.line)
	return ""
}

func (s *lifeScript) show(state State, changed bool) string {
	text := state.String()
	if changed {
		text += " changed"
	}
	if next, ok := s.life.Next(); ok {
		text += fmt.Sprintf(" next=%v", next)
	}
	return text + fmt.Sprintf(" suspensions=%d", s.life.Suspensions())
}
