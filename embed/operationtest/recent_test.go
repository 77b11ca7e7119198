package operationtest

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/internal/embedkit"
	"github.com/vivarium-go/vivarium/engine/health"
)

// kindsOf returns the kinds of what happened to a node, without repeats side by side.
func kindsOf(n *embed.Node) (kinds []string) {
	for _, o := range n.Recent(0) {
		kinds = append(kinds, o.Kind)
	}
	return slices.Compact(kinds)
}

// wantOccurrence fails unless a node remembers what is wanted, ignoring At and Took.
func wantOccurrence(t *testing.T, n *embed.Node, want embed.Occurrence) {
	t.Helper()
	if !slices.ContainsFunc(n.Recent(0), func(o embed.Occurrence) bool {
		o.At, o.Took = time.Time{}, 0
		return o == want
	}) {
		t.Errorf("%v is not in %v", want, n.Recent(0))
	}
}

// A member remembers how it started, lost its quorum and its sessions, and got them back. When it
// fails, its log has that in one line.
func TestRecent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log embedkit.Record
		ens := embedtest.New(t, 3, embedtest.Options{Logger: slog.New(slog.NewJSONHandler(&log, nil)), Config: func(c *embed.Config) { c.Shards = 1 }})
		ens.TransferLeadership(2)
		s := ens.Session(1, embed.SessionOptions{Timeout: 10 * time.Second})
		<-time.After(time.Second)
		n := ens.Node(1)
		term := n.Status().Shards[0].Term
		for _, want := range []embed.Occurrence{
			{Kind: "ready"}, {Kind: "leader changed", Shard: 1, Member: 2, Number: term},
			{Kind: "peer connected", Member: 2},
		} {
			wantOccurrence(t, n, want)
		}
		ens.Isolate(1)
		ens.Until("the session to be suspended", func() bool { state, _ := s.State(); return state == embed.Suspended })
		ens.HealAll()
		<-time.After(5 * time.Second)
		if state, _ := s.State(); state != embed.Connected {
			t.Fatalf("the session is %v", state)
		}
		for _, want := range []embed.Occurrence{
			{Kind: "quorum lost", Shard: 1}, {Kind: "quorum back", Shard: 1}, {Kind: "peer lost", Member: 2},
			{Kind: "sessions suspended", Number: 1}, {Kind: "sessions resumed", Number: 1},
		} {
			wantOccurrence(t, n, want)
		}
		all := n.Recent(-1)
		if !slices.IsSortedFunc(all, func(a, b embed.Occurrence) int { return a.At.Compare(b.At) }) {
			t.Errorf("not in order: %v", all)
		}
		if got := n.Recent(3); !slices.Equal(got, all[len(all)-3:]) {
			t.Errorf("the newest three are %v, of %v", got, all)
		}
		ens.Kill(1)
		<-n.Done()
		synctest.Wait()
		lines := log.Of(1, "what happened before the failure")
		if len(lines) != 1 {
			t.Fatalf("%v", lines)
		}
		texts := strings.Split(lines[0]["recent"].(string), "; ")
		if last := n.Recent(0); len(texts) > 64 || !slices.Contains(texts, last[len(last)-2].String()) || !strings.Contains(lines[0]["recent"].(string), "failed") {
			t.Errorf("%q", texts)
		}
	})
}

// Members that come and go, and a state that is installed because a member was away.
func TestRecent_Members(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log embedkit.Record
		ens := embedtest.New(t, 3, embedtest.Options{KeepEntries: 10, Logger: slog.New(slog.NewJSONHandler(&log, nil)), Config: func(c *embed.Config) { c.Shards = 1 }})
		embedkit.Founded(ens)
		n := ens.Node(1)
		fourth := ens.Join()
		ens.Until("the fourth member", func() bool { return slices.Contains(kindsOf(ens.Node(1)), "member joined") })
		ens.Ready(fourth)
		id := ens.Node(fourth).Status().Member
		wantOccurrence(t, n, embed.Occurrence{Kind: "member joined", Member: id})
		if lines := log.Of(id, "this member has another part"); len(lines) != 1 || lines[0]["part"] != "learner" {
			t.Errorf("the fourth member's part: %v", lines)
		}
		ens.Stop(3)
		s := ens.Session(1, embed.SessionOptions{Timeout: time.Minute})
		_, err := s.Create(bounded(t), "/a", nil, embed.Persistent)
		must(t, err)
		for range 100 {
			_, err := s.Set(bounded(t), "/a", nil, embed.AnyVersion)
			must(t, err)
		}
		must(t, embedkit.EngineOf(ens.Node(1)).RequestSnapshot())
		must(t, embedkit.EngineOf(ens.Node(2)).RequestSnapshot())
		<-time.After(10 * time.Second)
		ens.Start(3)
		ens.Ready(3)
		ens.Until("the state", func() bool { return len(log.Of(3, "state of another member installed")) > 0 })
		wantOccurrence(t, ens.Node(3), embed.Occurrence{Kind: "state installed", Shard: 1})
		must(t, ens.Node(fourth).Leave(bounded(t)))
		ens.Until("the end of the fourth member", func() bool { return slices.Contains(kindsOf(ens.Node(1)), "member gone") })
		wantOccurrence(t, n, embed.Occurrence{Kind: "member gone", Member: id})
	})
}

// The doc of Occurrence lists exactly the kinds that there are.
func TestRecent_EveryKindIsDocumented(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "recent.go"))
	must(t, err)
	rows := regexp.MustCompile(`(?m)^\t//\t([a-z]+(?: [a-z]+)*?)(?:  .*)?$`).FindAllStringSubmatch(string(text), -1)
	for i, row := range rows {
		if want := fmt.Sprint(health.Kind(i)); row[1] != want {
			t.Errorf("embed/recent.go: row %d of the kinds of Occurrence is %q, want %q, as in health.Kind", i, row[1], want)
		}
	}
	if len(rows) != int(health.Failed)+1 {
		t.Errorf("embed/recent.go: the comment of Occurrence has rows of %d kinds, want those of health.Kind, %d", len(rows), health.Failed+1)
	}
}
