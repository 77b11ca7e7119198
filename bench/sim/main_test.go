//go:build unix

package main

import (
	"bytes"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/bench/campaign"
)

func TestParse(t *testing.T) {
	for _, wrong := range []string{"-virtual 1s", "-members 4", "-shards 0", "-pace 0", "-scale 0", "-scale 3001", "-virtual 60s -scale 4", "-round -1", "-cycles 1,x", "-faults nothing", "more"} {
		if _, err := parse(strings.Fields(wrong), io.Discard); err == nil {
			t.Errorf("%s: no error", wrong)
		}
	}
	o, err := parse(strings.Fields("-virtual 2h -members 5 -shards 4 -scale 7 -faults kill,cut -clients lock"), io.Discard)
	if none, err := parse(strings.Fields("-faults none -clients none"), io.Discard); err != nil || len(none.Kinds()) > 0 {
		t.Errorf("%q, %v", none.Kinds(), err)
	}
	if err != nil || o.Seed == 0 || o.Scale != 7 || o.Length != 2*time.Hour/7 {
		t.Fatalf("%+v, %v", o, err)
	}
	again, err := parse(o.args(3, []int{1, 4}), io.Discard)
	if err != nil || again.Seed != o.Seed || again.Length != o.Length || again.Scale != 7 || again.Members != 5 || again.Shards != 4 || again.only != o.only || again.clients != "lock" || again.Round != 3 || !slices.Equal(again.Cycles, []int{1, 4}) {
		t.Errorf("%+v, %v; want what repeats %+v", again, err, o)
	}
}

// This build's runtime is the usual one. So no fault may make anybody wait under a mutex.
func TestRun(t *testing.T) {
	o, err := parse(strings.Fields("-virtual 40s -seed 1 -faults isolate,kill"), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	o.Dir = t.TempDir()
	var out bytes.Buffer
	if status := run(t, o, &out); status != exitWell || !strings.Contains(out.String(), "violations: 0") {
		t.Errorf("exit status %d\n%s", status, &out)
	}
}

// The times of a ground keep the order of what happens at one moment.
func TestBubbles_Now(t *testing.T) {
	g := newBubbles(t, campaign.Settings{Seed: 1, Pace: 10, Scale: 3}, io.Discard)
	last := g.Now()
	for range 2 {
		g.Round(func() {
			for _, pause := range []time.Duration{0, time.Second, 0} {
				time.Sleep(3 * pause)
				now := g.Now()
				if now <= last || now-last < pause-time.Microsecond || now-last > pause+time.Microsecond {
					t.Errorf("%v, and %v later %v", last, pause, now)
				}
				last = now
			}
		})
	}
}

func TestDdmin(t *testing.T) {
	for _, need := range [][]int{{1}, {7}, {2, 9}, {1, 5, 6, 10}} {
		asked := 0
		got := ddmin([]int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, func(some []int) bool {
			asked++
			for _, n := range need {
				if !slices.Contains(some, n) {
					return false
				}
			}
			return true
		})
		if !slices.Equal(got, need) || asked > 60 {
			t.Errorf("%v after %d questions, want %v", got, asked, need)
		}
	}
}
