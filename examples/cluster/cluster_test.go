package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
)

// The members are this test's own binary.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == memberCommand {
		os.Exit(member(os.Stdin, os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// writeInput writes an unusual file: no header, quotes, and few accounts with odd names, one of
// which has most of the orders. Some lines are not orders.
func writeInput(t *testing.T, n int) string {
	var b strings.Builder
	for i := range n {
		account := "../main"
		if i%3 == 0 {
			account = fmt.Sprintf(`"side, %d %%"`, i%4)
		}
		fmt.Fprintf(&b, "%d/x,%s,%d.%d\r\n", i, account, 40-i, i%10)
		if i%20 == 7 {
			fmt.Fprintf(&b, "%d/x,again,1\r\nno order\r\n", i)
		}
	}
	name := filepath.Join(t.TempDir(), "orders.csv")
	if err := os.WriteFile(name, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	return name
}

// settle runs the parent, and returns what it prints. On a busy machine a run may take too long, or
// a process may lose its session just when the show needs the process. Then settle tries again with
// more patience.
func settle(t *testing.T, o options) string {
	t.Helper()
	for _, o.patience = range []int{1, 4, 16} {
		o.temp = t.TempDir()
		var out bytes.Buffer
		err := run(t.Context(), o, &out)
		t.Log("\n" + out.String())
		checkEmpty(t, o.temp)
		if err == nil {
			return out.String()
		}
		late := regexp.MustCompile(errTooLong.Error() + "|was granted only|settled nothing after it came back|was not caught")
		faults := out.String()[max(0, strings.Index(out.String(), "verdict:")):]
		if !errors.Is(err, errVerdict) || !late.MatchString(faults) || strings.Contains(faults, "booked twice") {
			t.Fatal(err)
		}
	}
	t.Fatal("each run takes too long")
	return ""
}

func TestCluster(t *testing.T) { bothWays(t, testCluster) }

func testCluster(t *testing.T, shards int) {
	out := settle(t, options{input: writeInput(t, 60), shards: shards, target: 5 * time.Second})
	for _, want := range []string{
		":9: skipped: id ", ":10: skipped: want the 3 fields",
		"60 settled, 0 lost, 0 twice, one leader killed", "balances equal to a plain run: 5 of 5", "verdict: right",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("the output lacks %q", want)
		}
	}
	if used := regexp.MustCompile(`led by \w+ at zxid [1-9]`).FindAllString(out, -1); len(used) != shards {
		t.Errorf("of %d shards these were used: %q", shards, used)
	}
}

// Processes join, lose their directory and leave while orders are settled.
func TestCluster_Scale(t *testing.T) {
	t.Parallel() // it takes most of a minute, which it waits: members change one by one, some seconds apart
	out := settle(t, options{input: writeInput(t, 120), shards: 2, scale: true, target: 5 * time.Second})
	for _, want := range []string{
		"the ensemble has 3 members, of which 3 vote", "the ensemble has 7 members, of which 3 vote", "is back as member 8",
		"member 1 is out, and 3 of 5 vote", "120 settled, 0 lost, 0 twice, one voter killed and wiped, members that left: 2", "verdict: right",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("the output lacks %q", want)
		}
	}
}

// The report believes nobody who says that the ensemble has changed as it should.
func TestReport_ChecksTheChanges(t *testing.T) {
	member := func(id embed.MemberID, role embed.Role) embed.Member { return embed.Member{ID: id, Role: role} }
	for want, c := range map[string]*changes{
		"2 members vote at the end, not 3":           {members: []embed.Member{member(2, embed.Voter), member(3, embed.Voter), member(4, embed.Learner)}},
		"the founder votes at the end":               {members: []embed.Member{member(1, embed.Voter)}},
		"member 9 votes at the end and does not run": {members: []embed.Member{member(9, embed.Voter)}},
		"member 8 () is still listed":                {members: []embed.Member{member(8, embed.Learner)}},
		"no voter killed, members that left: 0":      {},
		"nobody asked again about order x":           {killed: 2, left: 2, lostID: "x"},
	} {
		c.running = map[embed.MemberID]int{1: 1, 2: 2, 3: 3, 4: 4}
		r := &report{changes: c}
		r.checkChanges(nil)
		if !strings.Contains(strings.Join(r.faults, "\n"), want) {
			t.Errorf("want %q in %q", want, r.faults)
		}
	}
}

func TestCluster_TooFewOrders(t *testing.T) {
	t.Parallel()
	out := settle(t, options{input: writeInput(t, 3), shards: 1, target: time.Second / 10})
	for _, want := range []string{"nobody is killed", "3 settled, 0 lost, 0 twice, no leader killed", "verdict: right"} {
		if !strings.Contains(out, want) {
			t.Errorf("the output lacks %q", want)
		}
	}
}

// Ctrl-C in the middle leaves nothing behind.
func TestCluster_Interrupted(t *testing.T) {
	t.Parallel()
	temp := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out := &tripwire{text: "all processes are ready", trip: cancel}
	begun := time.Now()
	if err := run(ctx, options{shards: 4, target: workTarget, temp: temp, patience: 4}, out); err == nil || !strings.Contains(err.Error(), "given up") {
		t.Fatalf("err %v", err)
	}
	t.Log("ended after", time.Since(begun))
	checkEmpty(t, temp)
}

func checkEmpty(t *testing.T, dir string) {
	t.Helper()
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// A tripwire calls trip when a text is written to it.
type tripwire struct {
	sync.Mutex
	text string
	trip func()
}

func (w *tripwire) Write(b []byte) (int, error) {
	w.Lock()
	defer w.Unlock()
	if strings.Contains(string(b), w.text) {
		w.trip()
	}
	return len(b), nil
}
