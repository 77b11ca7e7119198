package health

import (
	"testing"
	"time"
	"unsafe"
)

// The ring keeps the newest, in order, and allocates nothing once it is full.
func TestRecent_Ring(t *testing.T) {
	var r Recent
	if got := r.Newest(10); len(got) != 0 {
		t.Errorf("of nothing: %v", got)
	}
	check := func(n, want int, last uint64) {
		t.Helper()
		got := r.Newest(n)
		if len(got) != want {
			t.Fatalf("newest(%d) has %d, want %d", n, len(got), want)
		}
		for i, o := range got {
			if o.Number != last-uint64(want-1-i) {
				t.Fatalf("number %d is at %d of %d", o.Number, i, want)
			}
		}
	}
	for i := range uint64(3*recentMax + 7) {
		r.Note(Occurrence{Kind: Suspended, Number: i})
		if kept := int(min(i+1, recentMax)); i%999 == 0 || i == recentMax-1 || i == recentMax {
			check(0, kept, i)
			check(-1, kept, i)
			check(kept+1, kept, i)
			check(min(64, kept), min(64, kept), i)
		}
	}
	if n := testing.AllocsPerRun(100, func() { r.Note(Occurrence{}) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
	if size := unsafe.Sizeof(Occurrence{}); size > 64 {
		t.Errorf("an occurrence takes %d bytes", size)
	}
}

func TestOccurrence_String(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 67e6, time.UTC)
	for want, o := range map[string]Occurrence{
		"03:04:05.067 failed": {Kind: Failed},
		"03:04:05.067 leader changed shard=2 member=1 number=7": {Kind: LeaderChanged, Shard: 2, Member: 1, Number: 7},
		"03:04:05.067 slow commit shard=1 took=1.235s":          {Kind: SlowCommit, Shard: 1, Took: 1234567 * time.Microsecond},
		"03:04:05.067 clock jumped took=-1h0m0s":                {Kind: ClockJumped, Took: -time.Hour},
	} {
		if o.At = at; o.String() != want {
			t.Errorf("got %q, want %q", o, want)
		}
	}
	seen := make(map[string]bool)
	for k := range kinds {
		if name := k.String(); seen[name] || name == "" {
			t.Errorf("kind %d is called %q", k, name)
		} else {
			seen[name] = true
		}
	}
}

func BenchmarkRecent(b *testing.B) {
	var r Recent
	for b.Loop() {
		r.Note(Occurrence{Kind: PeerConnected, Member: 2})
	}
}
