package replica

import (
	"strconv"
	"testing"

	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/engine/enginetest"
	"github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/tree"
	"github.com/vivarium-go/vivarium/watch"
)

// configured returns what the config says, and its Stat.
func (r *rig) configured() (string, tree.Stat) {
	data, stat, _ := r.Tree().Get(tree.ConfigPath)
	return string(data), stat
}

// configRig is a foundedRig whose founders have said where they are.
func configRig(t *testing.T) *rig {
	r := foundedRig(t, 1)
	for m, host := range map[session.MemberID]string{enginetest.Member: "one", 2: "two", 3: "three"} {
		if got, stat := r.configured(); got != "" || stat.Mzxid != 0 {
			t.Errorf("somebody has not said yet where it is, and the config is %q, %+v", got, stat)
		}
		r.announce(m, host, "")
	}
	return r
}

// announce applies what a founder says of itself.
func (r *rig) announce(m session.MemberID, host, client string) {
	o, _ := r.mu.table.Origin(m)
	a := command.Announce{Name: host, Address: host + ".test:7946", Client: client}
	r.ask(m, o.Start, o.LastSeq+1, command.Request{Kind: command.RequestAnnounce, Announce: a})
}

// The config is written in the entry that changes a line of it, and in no other. Its version is the
// transaction, and its watches fire.
func TestConfigure(t *testing.T) {
	r := configRig(t)
	founders := "server.1=one.test:7946:0:participant\nserver.2=two.test:7946:0:participant\nserver.3=three.test:7946:0:participant\n"
	if got, stat := r.configured(); got != founders+"version="+strconv.FormatInt(int64(r.mu.Zxid), 16) || stat.Mzxid != r.mu.Zxid {
		t.Fatalf("the config is %q, %+v", got, stat)
	}
	place := func(m session.MemberID, p session.Part, change uint64) []byte {
		return command.EncodeReport(m, 1, session.Place{Part: p, Change: change}, 7)
	}
	join := command.EncodeJoin(session.Candidate{Directory: [16]byte{44}, Address: "four.test:7946"}, 5)
	announce := func(m session.MemberID, host, client string) func() {
		return func() { r.announce(m, host, client) }
	}
	apply := func(cmds ...[]byte) func() { return func() { r.apply(cmds...) } }
	before, _ := r.configured()
	for _, step := range []struct {
		what  string
		do    func()
		lines string // empty: as before
	}{
		{"a founder's place is known", apply(place(1, session.Voter, 2)), ""},
		{"it says the same again", announce(1, "one", ""), ""},
		{"a member is admitted", apply(join), ""},
		{"it learns", apply(place(4, session.Learner, 5)), founders + "server.4=four.test:7946:0:observer\n"},
		{"it is to vote", apply(command.EncodeGovern(1, 1), command.EncodeWant(1, 4, session.Voter, 0, 6)), ""},
		{"it votes", apply(place(4, session.Voter, 6)), founders + "server.4=four.test:7946:0:participant\n"},
		{"that is told again", apply(place(4, session.Voter, 6)), ""},
		{"a founder has clients", announce(2, "two", "two.test:2181"),
			"server.1=one.test:7946:0:participant\nserver.2=two.test:7946:0:participant;two.test:2181\nserver.3=three.test:7946:0:participant\nserver.4=four.test:7946:0:participant\n"},
		{"a founder moves", announce(3, "drei", ""),
			"server.1=one.test:7946:0:participant\nserver.2=two.test:7946:0:participant;two.test:2181\nserver.3=drei.test:7946:0:participant\nserver.4=four.test:7946:0:participant\n"},
		{"an address is no address", announce(3, "a b", ""), ""},
		{"it moves back", announce(3, "drei", ""), ""},
		{"a founder is removed", apply(command.EncodeWant(0, 2, session.Out, session.Removed, 9), place(2, session.Out, 8)),
			"server.1=one.test:7946:0:participant\nserver.3=drei.test:7946:0:participant\nserver.4=four.test:7946:0:participant\n"},
	} {
		events := r.Watches.Add(tree.ConfigPath, watch.Persistent, watch.Options{}, nil)
		zxid := r.mu.Zxid
		step.do()
		got, stat := r.configured()
		want, fires := before, 0
		if step.lines != "" {
			zxid++
			want, fires = step.lines+"version="+strconv.FormatInt(int64(zxid), 16), 1
			if stat.Mzxid != zxid || stat.Mtime.UnixMilli() == 0 {
				t.Errorf("%s: written at %v by %d, want %d", step.what, stat.Mtime, stat.Mzxid, zxid)
			}
		}
		if got != want || r.mu.Zxid != zxid || len(events.Events()) != fires || stat.Version != -1 || stat.Aversion != -1 {
			t.Fatalf("%s: the config is\n%s\nwant\n%s\n%d events, zxid %d, want %d; %+v", step.what, got, want, len(events.Events()), r.mu.Zxid, zxid, stat)
		}
		events.Close()
		before = got
	}
}

// A replica that starts again after every entry has the same config as one that does not.
func TestConfigure_AfterARestart(t *testing.T) {
	steady, restarted := configRig(t), configRig(t)
	for _, cmd := range [][]byte{
		command.EncodeJoin(session.Candidate{Directory: [16]byte{44}, Address: "four.test:7946"}, 5),
		command.EncodeReport(4, 1, session.Place{Part: session.Learner, Change: 5}, 6),
		command.EncodeReport(3, 1, session.Place{Part: session.Voter, Change: 1}, 7),
		command.EncodeGovern(1, 1),
		command.EncodeWant(1, 4, session.Voter, 0, 8),
		command.EncodeReport(4, 1, session.Place{Part: session.Voter, Change: 9}, 9),
	} {
		steady.apply(cmd)
		restarted.apply(cmd)
		if err := restarted.save(); err != nil {
			t.Fatal(err)
		}
		if err := restarted.Load(restarted.image); err != nil {
			t.Fatal(err)
		}
		want, wantStat := steady.configured()
		got, stat := restarted.configured()
		if got == "" || got != want || stat != wantStat || steady.mu.Zxid != restarted.mu.Zxid {
			t.Fatalf("after the restart %q, %+v at %d\nwant %q, %+v at %d", got, stat, restarted.mu.Zxid, want, wantStat, steady.mu.Zxid)
		}
	}
}

// The next change of the members replaces what a super identity wrote there.
func TestConfigure_ReplacesWhatSomebodyWrote(t *testing.T) {
	r := configRig(t)
	want, _ := r.configured()
	h := tree.Header{Zxid: r.mu.Zxid + 1, Identities: []tree.Identity{{Scheme: "super"}}}
	if _, err := r.commit(h, []tree.Op{{Kind: tree.KindSet, Path: tree.ConfigPath, Data: []byte("server.9=x:1:2"), Version: -1}}, nil); err != nil {
		t.Fatal(err)
	}
	r.apply(command.EncodeGovern(1, 1))
	got, stat := r.configured()
	if got[:len(got)-2] != want[:len(want)-2] || stat.Version != -1 {
		t.Errorf("the config is %q, %+v, want the lines of %q", got, stat, want)
	}
}
