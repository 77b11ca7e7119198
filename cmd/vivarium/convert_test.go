package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/cmd/vivarium/internal/client"
	"github.com/vivarium-go/vivarium/cmd/vivarium/internal/zkdir"
	"github.com/vivarium-go/vivarium/internal/testkit/zookeeper"
	"github.com/vivarium-go/vivarium/internal/wire"
)

var record = flag.Bool("record-zookeeper", false, "record the directories of testdata/zookeeper from ZooKeeper's own server")

// A server of ZooKeeper is killed while clients change its tree. What its directory is converted to
// is what a client lists of the same server after a restart.
func TestConvert_AKilledServer(t *testing.T) {
	zookeeper.Need(t)
	for seed := range uint64(3) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			dir := t.TempDir()
			options := []string{"-Dzookeeper.snapCount=150", "-Dzookeeper.preAllocSize=64"}
			if seed == 1 {
				options = append(options, "-Dzookeeper.snapshot.compression.method=gz")
			}
			if seed == 2 {
				options = append(options, "-Dzookeeper.snapshot.compression.method=snappy", "-Dzookeeper.digest.enabled=false")
			}
			for life := range uint64(2) { // in the second one the files are those of two
				addr, kill := zookeeper.StartIn(t, dir, "tickTime=2000\nmaxSessionTimeout=120000\n", options...)
				changeAndKill(t, addr, seed<<8|life, kill)
			}
			before := filepath.Join(t.TempDir(), "copy")
			must(t, os.CopyFS(before, os.DirFS(dir)))
			converted, err := zkdir.Read(before, before)
			must(t, err)
			addr, _ := zookeeper.StartIn(t, dir, "tickTime=2000\nmaxSessionTimeout=120000\n", options...)
			want := listed(t, addr)
			if len(want) < 50 {
				t.Errorf("only %d znodes", len(want))
			}
			compareTrees(t, converted, want)
			convertsAndVerifies(t, before)
			if *record {
				recordDir(t, before, filepath.Join(testdata, "zookeeper", fmt.Sprintf("3.8.0-%d", seed)), want)
			}
		})
	}
}

// A seen is what a client sees of a znode.
type seen struct {
	Stat wire.Stat
	Data []byte
	ACL  []wire.ACL
}

// connected returns a client that may read all that the test creates.
func connected(t *testing.T, addr string) *client.Client {
	t.Helper()
	c, err := client.New(client.Config{Servers: []string{addr}, Timeout: time.Minute})
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	must(t, c.Ready(ctx))
	must(t, c.AddAuth(ctx, "digest", []byte("user:password")))
	return c
}

// listed returns all znodes that a server shows, by path.
func listed(t *testing.T, addr string) map[string]seen {
	t.Helper()
	c := connected(t, addr)
	defer c.Close()
	list := make(map[string]seen)
	call := func(op wire.Op, path string) wire.Reply {
		r, err := c.Call(t.Context(), wire.Request{Operation: wire.Operation{Op: op, Path: path}})
		if err != nil {
			t.Fatalf("%v %s: %v", op, path, err)
		}
		return r
	}
	var walk func(path string)
	walk = func(path string) {
		if path == "/zookeeper/config" {
			return
		}
		children := call(wire.OpGetChildren2, path)
		list[path] = seen{children.Stat, call(wire.OpGetData, path).Data, call(wire.OpGetACL, path).ACL}
		for _, name := range children.Names {
			walk(strings.TrimSuffix(path, "/") + "/" + name)
		}
	}
	walk("/")
	return list
}

// changeAndKill changes a tree with several clients, and kills the server after some time.
func changeAndKill(t *testing.T, addr string, seed uint64, kill func()) {
	t.Helper()
	const clients, most = 4, 400
	var all sync.WaitGroup
	var mu sync.Mutex
	done, enough := 0, make(chan struct{})
	for i := range uint64(clients) {
		c := connected(t, addr)
		t.Cleanup(func() { _ = c.Close() })
		rng := rand.New(rand.NewPCG(seed, i))
		all.Go(func() {
			for {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				_, err := c.Call(ctx, randomChange(rng))
				cancel()
				if code := client.CodeOf(err); err != nil && (code == wire.ConnectionLoss || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)) {
					return
				}
				mu.Lock()
				if done++; done == most {
					close(enough)
				}
				mu.Unlock()
			}
		})
	}
	closing := connected(t, addr) // its ephemerals go in the middle
	for i := range 5 {
		_, _ = closing.Call(t.Context(), wire.Request{Operation: wire.Operation{Op: wire.OpCreate, Path: fmt.Sprintf("/of-closing-%d", i), Flags: wire.FlagsEphemeral, ACL: openACL}})
	}
	_ = closing.Close()
	<-enough
	kill()
	all.Wait()
}

var openACL = []wire.ACL{{Perms: 31, Scheme: "world", ID: "anyone"}}

// randomChange changes one of a few paths, or several.
func randomChange(rng *rand.Rand) wire.Request {
	lists := [][]wire.ACL{
		openACL,
		{{Perms: 31, Scheme: "auth"}},
		{{Perms: 31, Scheme: "digest", ID: "user:tpUq/4Pn5A64fVZyQ0gOJ8ZWqkY="}, {Perms: 1, Scheme: "world", ID: "anyone"}, {Perms: 31, Scheme: "auth"}},
		{{Perms: 31, Scheme: "ip", ID: "127.0.0.1"}, {Perms: 31, Scheme: "auth"}},
	}
	one := func() wire.Operation {
		path := fmt.Sprintf("/a%d", rng.IntN(6))
		for range rng.IntN(3) {
			path += fmt.Sprintf("/b%d", rng.IntN(4))
		}
		data := bytes.Repeat([]byte{byte(rng.IntN(256))}, rng.IntN(200))
		o := wire.Operation{Path: path, Data: data, ACL: lists[rng.IntN(len(lists))], Version: -1}
		switch rng.IntN(12) {
		case 0, 1, 2:
			o.Op = wire.OpCreate
		case 3:
			o.Op, o.Flags, o.Path = wire.OpCreate, wire.FlagsSequential, path+"/s-"
		case 4:
			o.Op, o.Flags, o.Path = wire.OpCreate, wire.FlagsEphemeral, path+"/e"
		case 5:
			o.Op, o.Flags = wire.OpCreateContainer, wire.FlagsContainer
		case 6:
			o.Op, o.Flags, o.TTL = wire.OpCreateTTL, wire.FlagsTTL, 1+rng.Int64N(1<<40-1)
		case 7, 8:
			o.Op = wire.OpSetData
		case 9:
			o.Op = wire.OpSetACL
		default:
			o.Op = wire.OpDelete
		}
		return o
	}
	if rng.IntN(4) > 0 {
		return wire.Request{Operation: one()}
	}
	q := wire.Request{Operation: wire.Operation{Op: wire.OpMulti}}
	for range 1 + rng.IntN(4) {
		if o := one(); o.Op != wire.OpSetACL {
			q.Ops = append(q.Ops, o)
		}
	}
	return q
}

// compareTrees checks that what was read from files is what a client has seen.
func compareTrees(t *testing.T, got *zkdir.Tree, want map[string]seen) {
	t.Helper()
	left := maps.Clone(want)
	for path, z := range got.Znodes() {
		w, ok := left[path]
		if !ok {
			t.Errorf("%s is too much", path)
			continue
		}
		delete(left, path)
		s := wire.Stat{Czxid: int64(z.Czxid), Mzxid: int64(z.Mzxid), Pzxid: int64(z.Pzxid), Ctime: z.Ctime, Mtime: z.Mtime, Version: z.Version, Aversion: z.Aversion,
			EphemeralOwner: int64(z.Owner), DataLength: int32(len(z.Data)), NumChildren: w.Stat.NumChildren, Cversion: 2*z.Created - w.Stat.NumChildren}
		if s != w.Stat {
			t.Errorf("%s: got %+v, want %+v", path, s, w.Stat)
		}
		if !bytes.Equal(z.Data, w.Data) || (z.Data == nil) != (w.Data == nil) {
			t.Errorf("%s: data %x, want %x", path, z.Data, w.Data)
		}
		var list []wire.ACL
		for _, a := range z.ACL {
			list = append(list, wire.ACL{Perms: wire.Perms(a.Perms), Scheme: a.Scheme, ID: a.ID})
		}
		if list == nil {
			list = openACL
		}
		if !slices.Equal(list, w.ACL) {
			t.Errorf("%s: ACL %v, want %v", path, list, w.ACL)
		}
	}
	for path := range left {
		t.Errorf("%s is missing", path)
	}
}

// convertsAndVerifies converts a directory with the command.
func convertsAndVerifies(t *testing.T, dir string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "zk.backup")
	said := mustRun(t, "", "convert", "-from-zookeeper", dir, file)
	if !strings.Contains(said, "znodes of ZooKeeper, converted at") || !strings.Contains(said, "ephemerals are in it to look at") {
		t.Errorf("convert says %q", said)
	}
	if said := mustRun(t, "", "verify", file); !strings.Contains(said, "sound") {
		t.Errorf("verify says %q", said)
	}
}

// listing is a file beside the recorded directories, which says what a client has seen.
const listing = "listing.json"

// recordDir keeps what is needed of a directory: the two newest snapshots and what comes after them.
// Logs end with many zeros.
func recordDir(t *testing.T, from, to string, want map[string]seen) {
	t.Helper()
	must(t, os.RemoveAll(to))
	must(t, os.MkdirAll(filepath.Join(to, "version-2"), 0o755))
	files, err := filepath.Glob(filepath.Join(from, "version-2", "*.*"))
	must(t, err)
	zxid := func(name string) (n uint64) {
		_, _ = fmt.Sscanf(strings.SplitN(filepath.Base(name), ".", 3)[1], "%x", &n)
		return n
	}
	slices.SortFunc(files, func(a, b string) int { return cmp.Compare(zxid(b), zxid(a)) }) // the newest first
	snapshots, done := 0, false
	for _, name := range files {
		if strings.HasPrefix(filepath.Base(name), "snapshot.") {
			snapshots++
			if snapshots > 2 {
				continue
			}
		} else if done {
			continue
		}
		done = snapshots > 1 && strings.HasPrefix(filepath.Base(name), "log.")
		b, err := os.ReadFile(name)
		must(t, err)
		if strings.HasPrefix(filepath.Base(name), "log.") {
			b = append(bytes.TrimRight(b, "\x00"), make([]byte, 16)...)
		}
		must(t, os.WriteFile(filepath.Join(to, "version-2", filepath.Base(name)), b, 0o644))
	}
	b, err := json.Marshal(want)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(to, listing), b, 0o644))
}

// The recorded directories are converted to what clients saw.
func TestConvert_Recorded(t *testing.T) {
	dirs, err := filepath.Glob(filepath.Join(testdata, "zookeeper", "*"))
	must(t, err)
	if len(dirs) == 0 {
		t.Fatal("nothing is recorded")
	}
	for _, dir := range dirs {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			got, err := zkdir.Read(dir, dir)
			must(t, err)
			b, err := os.ReadFile(filepath.Join(dir, listing))
			must(t, err)
			var want map[string]seen
			must(t, json.Unmarshal(b, &want))
			compareTrees(t, got, want)
			convertsAndVerifies(t, dir)
		})
	}
}
