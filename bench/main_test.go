//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/internal/testkit"
)

func TestMain(m *testing.M) {
	if lived() {
		return
	}
	os.Exit(m.Run())
}

// Suites of each kind measure something of both systems, and the JSON file contains it.
func TestRun(t *testing.T) {
	s := settings{suites: []string{"read", "create"}, systems: []string{"vivarium", "etcd"},
		window: 50 * time.Millisecond, rounds: 2, dir: t.TempDir()}
	if testkit.Night() {
		s.suites = append(s.suites, "failover") // forty elections
	}
	s.results = t.TempDir()
	var out bytes.Buffer
	if err := s.run(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(s.results, "2*"))
	if err != nil || len(files) != 2 {
		t.Fatalf("%v, %v", files, err)
	}
	text, err := os.ReadFile(files[0]) // .json comes before .txt
	if err != nil {
		t.Fatal(err)
	}
	if table, err := os.ReadFile(files[1]); err != nil || !bytes.HasSuffix(out.Bytes(), table[bytes.Index(table, []byte("\nmedians")):]) {
		t.Errorf("the file says %s, %v", table, err)
	}
	var got struct{ Results, Ratios []map[string]any }
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	above := func(in map[string]any, names ...string) {
		for _, name := range names {
			if n, ok := in[name].(float64); !ok || n <= 0 {
				t.Errorf("%s is %v in %v", name, in[name], in)
			}
		}
	}
	lines := 0
	for _, one := range suites {
		for _, name := range s.suites {
			if one.name == name {
				lines += len(one.lines)
			}
		}
	}
	if want := 2 * lines; len(got.Results) != want {
		t.Errorf("%d results, want %d:\n%s", len(got.Results), want, &out)
	}
	for _, r := range got.Results {
		if r["error"] != nil || r["suite"] == nil || r["system"] == nil {
			t.Errorf("result %v", r)
		}
		above(r, "clients", "rounds", "ops_per_s", "p50_us", "p99_us")
		if values, _ := r["values"].(map[string]any); r["suite"] == "failover" {
			above(values, "runs", "worst_ms")
		}
	}
	if len(got.Ratios) != lines {
		t.Errorf("%d ratios, want %d:\n%s", len(got.Ratios), lines, text)
	}
	for _, r := range got.Ratios {
		if r["suite"] == nil || r["peer"] != "etcd" {
			t.Errorf("ratio %v", r)
		}
		above(r, "clients", "ratio")
	}
	for _, want := range []string{"create", "vivarium", "etcd", "round 2"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the report does not say %q:\n%s", want, &out)
		}
	}
	if left, err := os.ReadDir(s.dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// Clients over connections measure members in processes of their own. A system without a gateway is
// left out of suite gateway.
func TestClients(t *testing.T) {
	testkit.ByNight(t, "it measures for a while, and by day TestRun does so with less")
	s := settings{systems: []string{"vivarium", "etcd"}, window: 20 * time.Millisecond, rounds: 1, dir: t.TempDir()}
	rep := &report{settings: s, began: time.Now(), out: &bytes.Buffer{}}
	for _, one := range suites {
		if one.name != "gateway" && one.name != "client" {
			continue
		}
		if err := s.runSuite(t.Context(), one, s.dir, rep); err != nil {
			t.Fatal(err)
		}
		for _, l := range one.lines {
			for _, name := range s.systems {
				got := rep.row(one.name, l, name)
				if one.name == "gateway" && name == "etcd" {
					if got.err != errMissing {
						t.Errorf("%s %d of etcd: %v", l.On, l.Clients, got.err)
					}
					continue
				}
				switch text, v := got.brief(), got.values(); {
				case got.err != nil:
					t.Errorf("%s %s %d %s: %v", one.name, l.On, l.Clients, name, got.err)
				case l.On == onIdle:
					if v["connections"] < 1 || v["resident_bytes_each"] == 0 {
						t.Errorf("idle: %s", text)
					}
				case got.rates()[0] <= 0:
					t.Errorf("%s %s %d %s: %s", one.name, l.On, l.Clients, name, text)
				}
			}
		}
	}
}

// Every kind of lock is measured, and compared with the mutex.
func TestLocks(t *testing.T) {
	testkit.ByNight(t, "it measures for a while, and by day TestRun does so with less")
	var out bytes.Buffer
	s := settings{suites: []string{"lock", "handoff"}, systems: []string{"vivarium"}, window: 20 * time.Millisecond, rounds: 1, dir: t.TempDir()}
	rep := &report{settings: s, began: time.Now(), out: &out}
	for _, one := range suites {
		if !slices.Contains(s.suites, one.name) {
			continue
		}
		if err := s.runSuite(t.Context(), one, s.dir, rep); err != nil {
			t.Fatal(err)
		}
		for _, l := range one.lines {
			got := rep.row(one.name, l, "vivarium")
			if got.err != nil || got.rates()[0] <= 0 {
				t.Errorf("%s %s %d: %s, %v", one.name, l.On, l.Clients, got.brief(), got.err)
			}
			values := got.values()
			if _, ok := foreign[l.On]; ok && values["most_ms"] <= millis(foreign[l.On]) {
				t.Errorf("%s: %v", l.On, values)
			}
			if _, ok := crowds[l.On]; ok && values["heap_bytes_each"] == 0 {
				t.Errorf("%s: %v", l.On, values)
			}
		}
	}
	rep.print(&out)
	for _, want := range []string{"read 64: ", "kept 8: ", "times vivarium mutex"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the report does not say %q:\n%s", want, &out)
		}
	}
}

// No suite's write is acknowledged before it is fsynced. On disks with a slow fsync every write
// takes that long.
func TestDurabilityIsNotTraded(t *testing.T) {
	testkit.ByNight(t, "it waits for hundreds of slow fsyncs")
	const slow = 50 * time.Millisecond
	plain := startNode
	defer func() { startNode = plain }()
	var faults [members]*embedtest.Faults
	for i := range faults {
		faults[i] = embedtest.NewFaults()
	}
	startNode = func(member int, c embed.Config) (*embed.Node, error) { return embedtest.Start(c, faults[member]) }
	for _, name := range []string{"write", "lock", "create", "session"} {
		where, err := newPlace(t.TempDir(), members)
		if err != nil {
			t.Fatal(err)
		}
		w := &worker{}
		if err := w.start(setup{System: "vivarium", Suite: name, Window: 10 * slow, Place: where}); err != nil {
			t.Fatal(err)
		}
		for _, f := range faults {
			f.SetDisk(embedtest.Disk{Delay: slow, On: embedtest.Syncs})
		}
		l := line{On: onAll, Clients: 6}
		if name == "lock" {
			l.On = onMutex
		}
		f, err := w.suite.measure(w, l)
		if most := float64(l.Clients) / slow.Seconds(); err != nil || f.Rate > most || f.P50 < slow*95/100 {
			t.Errorf("%s: %.0f/s, p50 %v, %v, with fsyncs of %v: want %.0f/s at most", name, f.Rate, f.P50, err, slow, most)
		}
		for _, f := range faults {
			f.SetDisk(embedtest.Disk{})
		}
		w.close()
	}
	if c := etcdConfig(place{Addrs: [][]string{{"127.0.0.1:1", "127.0.0.1:2"}}}, 0); c.UnsafeNoFsync {
		t.Error("etcd does not fsync")
	}
	if err := onDisk("/dev/shm"); err == nil {
		if fs, _ := os.ReadFile("/proc/mounts"); bytes.Contains(fs, []byte(" /dev/shm tmpfs ")) {
			t.Error("a directory in memory is accepted")
		}
	}
}

// A run that is interrupted leaves nothing behind.
func TestInterrupted(t *testing.T) {
	s := settings{suites: []string{"read"}, systems: []string{"vivarium"}, window: time.Hour, rounds: 1, dir: t.TempDir()}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if err := s.run(ctx, &bytes.Buffer{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("interrupted: %v", err)
	}
	if left, err := os.ReadDir(s.dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// A worker that dies, or does not answer in time, produces an error that says why.
func TestBrokenWorker(t *testing.T) {
	where, err := newPlace(t.TempDir(), members)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(where.Dir, "0")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := spawn(t.Context(), setup{System: "vivarium", Suite: "read", Window: time.Second, Place: where})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.measure(line{On: onAll, Clients: 1}); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("a member whose directory is a file: %v", err)
	}
	p.kill()
	where.Dir = t.TempDir()
	if p, err = spawn(t.Context(), setup{System: "vivarium", Suite: "read", Window: time.Second, Place: where}); err != nil {
		t.Fatal(err)
	}
	if _, err := p.measure(line{On: onAll, Clients: -1}); err == nil || !strings.Contains(err.Error(), "panic") {
		t.Errorf("a worker that panics: %v", err)
	}
	p.kill()
	if p, err = spawn(t.Context(), setup{System: "vivarium", Suite: "start", Window: time.Second, Place: where}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := p.ask(request{Do: doMeasure, Line: line{Clients: members}}, time.Millisecond); err == nil || !strings.Contains(err.Error(), "no answer in") {
			t.Errorf("a worker that is late: %v", err)
		}
	}
	p.kill()
}

func TestRatio(t *testing.T) {
	r := &report{settings: settings{systems: order}, out: &bytes.Buffer{}, began: time.Now()}
	l := line{On: onAll, Clients: 8}
	for round, rates := range [][2]float64{{10, 5}, {9, 3}, {8, 8}} {
		r.add("lock", l, "vivarium", round, figures{Rate: rates[0]}, nil)
		r.add("lock", l, "etcd", round, figures{Rate: rates[1], P50: time.Millisecond}, nil)
	}
	r.add("lock", l, "dragonboat", 0, figures{}, errMissing)
	r.add("lock", l, "zookeeper", 0, figures{Rate: 1}, nil)
	r.add("lock", l, "zookeeper", 1, figures{}, errors.New("it fell over"))
	got, ok := r.ratio(r.row("lock", l, "etcd"))
	if !ok || got.Ratio != 2 || got.Least != 1 || got.Most != 3 || got.Peer != "etcd" || got.Clients != 8 {
		t.Errorf("ratio %+v", got)
	}
	for _, name := range []string{"vivarium", "dragonboat", "zookeeper"} {
		if got, ok := r.ratio(r.row("lock", l, name)); ok {
			t.Errorf("ratio to %s: %+v", name, got)
		}
	}
	if p50, _ := r.row("lock", l, "etcd").micros(); p50 != 1000 {
		t.Errorf("p50 is %v µs", p50)
	}
	var out bytes.Buffer
	r.suites = []string{"lock"}
	r.print(&out)
	for _, want := range []string{"2.00 (1.00 to 3.00)", "FAILED: it fell over", "-"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
}

func TestParse(t *testing.T) {
	for _, args := range [][]string{{"-systems", "consul"}, {"-suite", "speed"}, {"-rounds", "0"}, {"-d", "0s"}, {"now"}} {
		if s, err := parse(args, &bytes.Buffer{}); err == nil {
			t.Errorf("%v: %+v", args, s)
		}
	}
	s, err := parse([]string{"-suite", "lock,write"}, &bytes.Buffer{})
	if err != nil || s.rounds != 3 || len(s.systems) != len(systems) || strings.Join(s.suites, " ") != "write lock" {
		t.Errorf("%+v, %v", s, err)
	}
}

// The callers of a line are on the members that the line names.
func TestMember(t *testing.T) {
	for on, want := range map[string][]int{onLeader: {1, 1, 1, 1}, onFollower: {2, 2, 2, 2}, onAll: {1, 2, 0, 1}} {
		for i, member := range want {
			if got := (line{On: on}).member(1, i); got != member {
				t.Errorf("caller %d on %s is on %d, want %d", i, on, got, member)
			}
		}
	}
}
