package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
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

func TestCluster(t *testing.T) { bothWays(t, testCluster) }

func testCluster(t *testing.T, shards int) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	var out bytes.Buffer
	err := run(t.Context(), options{input: writeInput(t, 60), shards: shards, target: 5 * time.Second}, &out)
	t.Log("\n" + out.String())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		":9: skipped: id ", ":10: skipped: want the 3 fields",
		"60 settled, 0 lost, 0 twice, one leader killed", "balances equal to a plain run: 5 of 5", "verdict: right",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the output lacks %q", want)
		}
	}
	if used := regexp.MustCompile(`led by \w+ at zxid [1-9]`).FindAllString(out.String(), -1); len(used) != shards {
		t.Errorf("of %d shards these were used: %q", shards, used)
	}
	checkEmpty(t, temp)
}

func TestCluster_TooFewOrders(t *testing.T) {
	var out bytes.Buffer
	if err := run(t.Context(), options{input: writeInput(t, 3), shards: 1, target: time.Second}, &out); err != nil {
		t.Fatal(err, out.String())
	}
	for _, want := range []string{"nobody is killed", "3 settled, 0 lost, 0 twice, no leader killed", "verdict: right"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the output lacks %q", want)
		}
	}
}

// Ctrl-C in the middle leaves nothing behind.
func TestCluster_Interrupted(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out := &tripwire{text: "all processes are ready", trip: cancel}
	begun := time.Now()
	if err := run(ctx, options{shards: 4, target: workTarget}, out); err == nil || !strings.Contains(err.Error(), "given up") {
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
