package operationtest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/internal/embedkit"
	"github.com/vivarium-go/vivarium/embed/internal/inside"
	"github.com/vivarium-go/vivarium/engine/backupfile"
	"github.com/vivarium-go/vivarium/engine/offline"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/tree"
)

// read returns the znodes of a backup by their paths, and fails the test unless it is sound. Of a
// znode that every shard has, it returns that of the first.
func read(t *testing.T, file []byte) (map[string]tree.Znode, embed.BackupInfo) {
	t.Helper()
	r, err := backupfile.NewReader(bytes.NewReader(file))
	must(t, err)
	znodes := make(map[string]tree.Znode)
	for {
		rec, err := r.Next()
		if err == io.EOF {
			return znodes, r.Info()
		}
		must(t, err)
		if _, there := znodes[rec.Path]; !there {
			rec.Znode.Data = bytes.Clone(rec.Znode.Data)
			znodes[rec.Path] = rec.Znode
		}
	}
}

// A backup of any member has each znode with all that it is, and the info that its reader gives.
func TestBackup_HasEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		ens := embedtest.New(t, 3, embedtest.Options{Config: func(c *embed.Config) { c.Ensemble = "orders" }})
		s := ens.Session(1, embed.SessionOptions{Auth: []embed.Auth{{Scheme: "digest", Credential: []byte("u:p")}}})
		var paths []string
		create := func(path string, data []byte, o embed.CreateOptions) {
			o.Parents = true
			path, _, err := s.CreateWith(ctx, path, data, o)
			must(t, err)
			paths = append(paths, path)
		}
		for _, p := range embedkit.Places() {
			create(p+"/a", []byte("data"), embed.CreateOptions{})
			create(p+"/a/nil", nil, embed.CreateOptions{})
			create(p+"/a/empty", []byte{}, embed.CreateOptions{})
			create(p+"/a-b", bytes.Repeat([]byte("x"), 600<<10), embed.CreateOptions{ACL: embed.CreatorACL()})
			create(p+"/container", nil, embed.CreateOptions{Mode: embed.Container})
			create(p+"/ttl", nil, embed.CreateOptions{Mode: embed.TTL, TTL: time.Hour})
			create(p+"/e", nil, embed.CreateOptions{Mode: embed.Ephemeral})
			create(p+"/s-", nil, embed.CreateOptions{Mode: embed.Sequential})
			for i := range 3 {
				_, err := s.Set(ctx, p+"/a", []byte{byte(i)}, embed.AnyVersion)
				must(t, err)
			}
			_, err := s.SetACL(ctx, p+"/a", embed.ReadACL(), embed.AnyVersion)
			must(t, err)
		}
		<-time.After(10 * time.Second) // until it has a lineage
		for _, id := range ens.Members() {
			var file bytes.Buffer
			info, err := ens.Node(id).Backup(ctx, &file)
			must(t, err)
			znodes, got := read(t, file.Bytes())
			if fmt.Sprint(got) != fmt.Sprint(info) {
				t.Errorf("the reader says %+v\nBackup said %+v", got, info)
			}
			if info.Ensemble != "orders" || info.Lineage == "" || info.Member != id || !slices.Equal(info.Members, ens.Members()) || info.Time != time.Now().UTC() || info.Size != int64(file.Len()) {
				t.Errorf("member %d: %+v", id, info)
			}
			for _, path := range paths {
				wantZnode(t, s, path, znodes)
			}
			if z := znodes[paths[0]]; z.Created != 2 || z.Version != 3 || z.Aversion != 1 {
				t.Errorf("%+v", z)
			}
		}
	})
}

// wantZnode compares a znode of a backup with the tree.
func wantZnode(t *testing.T, s *embed.Session, path string, znodes map[string]tree.Znode) {
	t.Helper()
	z, there := znodes[path]
	data, stat, err := s.Get(t.Context(), path)
	must(t, err)
	acl, _, err := s.ACL(t.Context(), path)
	must(t, err)
	if z.ACL == nil {
		z.ACL = embed.OpenACL()
	}
	got := tree.Stat{Czxid: z.Czxid, Mzxid: z.Mzxid, Pzxid: z.Pzxid, Ctime: time.UnixMilli(z.Ctime).UTC(), Mtime: time.UnixMilli(z.Mtime).UTC(),
		Version: z.Version, Cversion: 2*z.Created - stat.NumChildren, Aversion: z.Aversion, EphemeralOwner: z.Owner, DataLength: int32(len(z.Data)), NumChildren: stat.NumChildren}
	if !there || !bytes.Equal(z.Data, data) || (z.Data == nil) != (data == nil) || got != stat || !slices.Equal(z.ACL, acl) {
		t.Errorf("%s (%v): %+v, %v\nwant %+v, %v", path, there, got, z.ACL, stat, acl)
	}
}

// Writers move on while backups are made, on every member. Each backup has what was acknowledged
// before it began, each Multi as a whole, and of each writer all its writes up to one.
func TestBackup_WhileOthersWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{})
		type pair struct {
			at    string
			acked atomic.Uint64
		}
		var pairs []*pair
		var writers sync.WaitGroup
		stop := make(chan struct{})
		for i, p := range embedkit.Places() {
			for _, id := range ens.Members() {
				w := &pair{at: fmt.Sprintf("%s/%d", p, id)}
				s := ens.Session(id, embed.SessionOptions{})
				for _, side := range []string{"/a", "/b"} {
					_, err := s.Put(t.Context(), w.at+side, make([]byte, 8))
					must(t, err)
				}
				pairs = append(pairs, w)
				writers.Go(func() {
					for n := uint64(1); ; n++ {
						select {
						case <-stop:
							return
						case <-time.After(time.Duration(i+1) * time.Millisecond):
						}
						data := binary.BigEndian.AppendUint64(nil, n)
						if _, err := s.Multi(context.Background(), embed.OpSet(w.at+"/a", data, embed.AnyVersion), embed.OpSet(w.at+"/b", data, embed.AnyVersion)); err != nil {
							t.Error(err)
							return
						}
						w.acked.Store(n)
					}
				})
			}
		}
		moved := 0
		for i := range 30 {
			<-time.After(7 * time.Millisecond)
			id := ens.Members()[i%3]
			if i%5 == 0 {
				_ = ens.Snapshot(id)
			}
			before := make([]uint64, len(pairs))
			for i, w := range pairs {
				before[i] = w.acked.Load()
			}
			var file bytes.Buffer
			info, err := ens.Node(id).Backup(t.Context(), &trickle{&file, time.Millisecond})
			must(t, err)
			znodes, _ := read(t, file.Bytes())
			for i, w := range pairs {
				a, b := binary.BigEndian.Uint64(znodes[w.at+"/a"].Data), binary.BigEndian.Uint64(znodes[w.at+"/b"].Data)
				if a != b || a < before[i] {
					t.Fatalf("member %d: %s has %d and %d, acknowledged before were %d", id, w.at, a, b, before[i])
				}
			}
			for i, w := range pairs {
				if w.acked.Load() > before[i] {
					moved++
				}
			}
			if info.Znodes < 2*len(pairs) {
				t.Errorf("%+v", info)
			}
		}
		if moved == 0 {
			t.Error("nobody wrote while a backup was made")
		}
		close(stop)
		writers.Wait()
	})
}

// A trickle takes what it is given slowly.
type trickle struct {
	io.Writer
	each time.Duration
}

func (w *trickle) Write(b []byte) (int, error) {
	<-time.After(w.each)
	return w.Writer.Write(b)
}

// A stuckWriter takes so many bytes, then says so, and hangs.
type stuckWriter struct {
	left  int
	hangs chan struct{} // closed when it hangs
	on    chan struct{} // closed to let it go on
}

func newStuck(left int) *stuckWriter {
	return &stuckWriter{left: left, hangs: make(chan struct{}), on: make(chan struct{})}
}

func (w *stuckWriter) Write(b []byte) (int, error) {
	if w.left -= len(b); w.left < 0 && w.left+len(b) >= 0 {
		close(w.hangs)
		<-w.on
	}
	return len(b), nil
}

// hung waits until the writer hangs.
func (w *stuckWriter) hung(t *testing.T, result <-chan error) {
	t.Helper()
	select {
	case <-w.hangs:
	case err := <-result:
		t.Fatalf("the backup ended before its writer hung: %v", err)
	}
}

// filled starts an ensemble with some megabytes in it, and returns a session of member 1.
func filled(t *testing.T, o embedtest.Options) (*embedtest.Ensemble, *embed.Session) {
	t.Helper()
	ens := embedtest.New(t, 3, o)
	s := ens.Session(1, embed.SessionOptions{})
	for i := range 8 {
		_, err := s.Put(t.Context(), fmt.Sprintf("%s/%d", embedkit.LastPlace(), i), bytes.Repeat([]byte("x"), 300<<10))
		must(t, err)
	}
	return ens, s
}

// A writer that hangs holds up nobody: neither writes, nor snapshots, nor the member's stop. The
// backup goes on when the writer does.
func TestBackup_AWriterThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ens, s := filled(t, embedtest.Options{})
		var file bytes.Buffer
		w := newStuck(600 << 10)
		result := make(chan error, 1)
		go func() {
			_, err := ens.Node(1).Backup(t.Context(), io.MultiWriter(&file, w))
			result <- err
		}()
		w.hung(t, result)
		for i := range 100 {
			began := time.Now()
			_, err := s.Put(t.Context(), fmt.Sprintf("%s/%d", embedkit.LastPlace(), i%8), bytes.Repeat([]byte("y"), 100<<10))
			must(t, err)
			if took := time.Since(began); took > time.Second {
				t.Errorf("a write took %v", took)
			}
		}
		must(t, ens.Snapshot(1))
		<-time.After(time.Minute)
		close(w.on)
		must(t, <-result)
		znodes, _ := read(t, file.Bytes())
		for i := range 8 {
			if z := znodes[fmt.Sprintf("%s/%d", embedkit.LastPlace(), i)]; len(z.Data) != 300<<10 || z.Version != 0 {
				t.Errorf("znode %d is of a later time: %d bytes, version %d", i, len(z.Data), z.Version)
			}
		}
	})
}

// However a backup is interrupted, Backup says why, and its node goes on or ends as it would have.
func TestBackup_Interrupted(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(ens *embedtest.Ensemble, cancel func())
		want error
	}{
		"its ctx ends":       {func(_ *embedtest.Ensemble, cancel func()) { cancel() }, context.Canceled},
		"its node is killed": {func(ens *embedtest.Ensemble, _ func()) { ens.Kill(2) }, embed.ErrFailed},
		"its node stops":     {func(ens *embedtest.Ensemble, _ func()) { ens.Stop(2) }, embed.ErrClosed},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ens, s := filled(t, embedtest.Options{})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				w := newStuck(600 << 10)
				result := make(chan error, 1)
				n := ens.Node(2)
				go func() {
					_, err := n.Backup(ctx, w)
					result <- err
				}()
				w.hung(t, result)
				began := time.Now()
				c.end(ens, cancel)
				if took := time.Since(began); took > time.Second {
					t.Errorf("the member's end took %v", took)
				}
				close(w.on)
				if err := <-result; !errors.Is(err, c.want) {
					t.Errorf("%v, want %v", err, c.want)
				}
				_, err := s.Put(t.Context(), embedkit.LastPlace(), nil)
				must(t, err)
			})
		})
	}
}

// A full disk at the target, at any moment, is an error of the backup and of nothing else. What is
// there then is no backup.
func TestBackup_AWriterThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ens, s := filled(t, embedtest.Options{})
		for left := range 100 {
			f := &full{left: left}
			_, err := ens.Node(3).Backup(t.Context(), f)
			if err == nil {
				if left < 5 {
					t.Errorf("a backup of %d writes", left)
				}
				read(t, f.Bytes())
				break
			}
			if !errors.Is(err, syscall.ENOSPC) {
				t.Fatalf("after %d writes: %v", left, err)
			}
			r, err := backupfile.NewReader(&f.Buffer)
			for err == nil {
				_, err = r.Next()
			}
			if !errors.Is(err, backupfile.ErrCorrupt) {
				t.Errorf("after %d writes: %v", left, err)
			}
		}
		_, err := s.Put(t.Context(), embedkit.LastPlace(), nil)
		must(t, err)
	})
}

// A full takes so many writes whole, and half of the next one.
type full struct {
	bytes.Buffer
	left int
}

func (f *full) Write(b []byte) (int, error) {
	if f.left--; f.left < 0 {
		f.Buffer.Write(b[:len(b)/2])
		return len(b) / 2, syscall.ENOSPC
	}
	return f.Buffer.Write(b)
}

// Without a quorum there is no telling what was acknowledged elsewhere, so there is no backup.
func TestBackup_WithoutAQuorum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ens, _ := filled(t, embedtest.Options{})
		ens.Isolate(1)
		began := time.Now()
		_, err := ens.Node(1).Backup(t.Context(), io.Discard)
		if took := time.Since(began); !errors.Is(err, embed.ErrUnavailable) || took > embed.DefaultRequestTimeout {
			t.Errorf("%v after %v", err, took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := ens.Node(1).Backup(ctx, io.Discard); !errors.Is(err, embed.ErrUnavailable) && !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		ctx, cancel = context.WithCancel(t.Context())
		cancel()
		if _, err := ens.Node(1).Backup(ctx, io.Discard); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		n := ens.Node(1)
		ens.HealAll()
		_, err = n.Backup(t.Context(), io.Discard)
		must(t, err)
		ens.Stop(1)
		if _, err := n.Backup(t.Context(), io.Discard); !errors.Is(err, embed.ErrClosed) {
			t.Error(err)
		}
	})
}

// A backup that the disk would have to keep too much for is given up, even while its writer hangs.
func TestBackup_TooSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ens, s := filled(t, embedtest.Options{Config: func(c *embed.Config) { c.Inside = &inside.Seams{Behind: 4 << 20} }})
		w := newStuck(600 << 10)
		result := make(chan error, 1)
		go func() {
			_, err := ens.Node(1).Backup(t.Context(), w)
			result <- err
		}()
		w.hung(t, result)
		for i := range 1024 { // the image gets what is saved, and that is 1 MiB at a time
			_, err := s.Put(t.Context(), fmt.Sprintf("%s/new-%d", embedkit.LastPlace(), i%100), bytes.Repeat([]byte("y"), 10<<10))
			must(t, err)
		}
		<-time.After(2 * time.Second)
		close(w.on)
		if err := <-result; !errors.Is(err, embed.ErrSlowBackup) || !strings.Contains(err.Error(), "bytes were written on shard") {
			t.Error(err)
		}
	})
}

// Who has joined, and does not vote, can make a backup too.
func TestBackup_OfALearner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ens := embedtest.New(t, 1, embedtest.Options{KeepEntries: 1, Config: func(c *embed.Config) { c.Observer = c.ID != 1 }})
		s := ens.Session(1, embed.SessionOptions{})
		_, err := s.Put(t.Context(), embedkit.LastPlace()+"/a", []byte("1"))
		must(t, err)
		<-time.After(10 * time.Second) // until members may join
		must(t, ens.Snapshot(1))
		place := ens.Join()
		ens.Ready(place)
		_, err = s.Put(t.Context(), embedkit.LastPlace()+"/b", []byte("2"))
		must(t, err)
		var file bytes.Buffer
		info, err := ens.Node(place).Backup(t.Context(), &file)
		must(t, err)
		znodes, _ := read(t, file.Bytes())
		if string(znodes[embedkit.LastPlace()+"/a"].Data) != "1" || string(znodes[embedkit.LastPlace()+"/b"].Data) != "2" || len(info.Members) != 2 {
			t.Errorf("%+v", info)
		}
	})
}

// A member that lags behind waits for what was acknowledged elsewhere before its backup began.
func TestBackup_OfAMemberThatLags(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{})
		ens.TransferLeadership(1)
		s := ens.Session(1, embed.SessionOptions{})
		for id := range embed.MemberID(2) {
			ens.Faults(id+1).SetLink(3, embedtest.Link{Delay: 300 * time.Millisecond})
		}
		for i := range 10 {
			for _, p := range embedkit.Places() {
				_, err := s.Put(t.Context(), p, []byte{byte(i)})
				must(t, err)
			}
			var file bytes.Buffer
			_, err := ens.Node(3).Backup(t.Context(), &file)
			must(t, err)
			znodes, _ := read(t, file.Bytes())
			for _, p := range embedkit.Places() {
				if !bytes.Equal(znodes[p].Data, []byte{byte(i)}) {
					t.Fatalf("%s is %x, acknowledged was %d", p, znodes[p].Data, i)
				}
			}
		}
	})
}

// A process that is no member gets a backup from a member that does not lead. A member makes one at
// a time for others, and none for another ensemble.
func TestAskBackup(t *testing.T) {
	t.Parallel()
	// Who asks comes by TCP. A busy machine may have no quorum for a while.
	nodes := embedkit.StartTCP(t, "127.0.0.1", 3, func(c *embed.Config) {
		c.Dir, c.Ensemble, c.RequestTimeout = t.TempDir(), "orders", testkit.Patience
	})
	embedkit.Ready(t, nodes[1], nodes[2], nodes[3])
	s, err := nodes[1].NewSession(bounded(t), embed.SessionOptions{})
	must(t, err)
	for i := range 8 {
		_, err := s.Put(bounded(t), fmt.Sprintf("%s/%d", embedkit.LastPlace(), i), bytes.Repeat([]byte("x"), 300<<10))
		must(t, err)
	}
	asks := embed.Config{Ensemble: "orders", Members: make(map[embed.MemberID]string), Logger: embedkit.Quiet}
	for _, m := range nodes[1].Members() {
		asks.Members[m.ID] = m.Address
	}
	until(t, "a backup without an election meanwhile", func() bool {
		before := nodes[1].Status()
		var file bytes.Buffer
		must(t, embed.AskBackup(bounded(t), asks, &file))
		znodes, info := read(t, file.Bytes())
		if info.Ensemble != "orders" || len(znodes[embedkit.LastPlace()+"/7"].Data) != 300<<10 {
			t.Errorf("%+v", info)
		}
		after := nodes[1].Status()
		if after.Shards[0].Term != before.Shards[0].Term || before.Shards[0].Leader == 0 {
			return false
		}
		if after.Shards[0].Leader == info.Member {
			t.Errorf("the backup is by the leader: %+v", info)
		}
		return true
	})

	one := asks
	one.Members = map[embed.MemberID]string{1: asks.Members[1]}
	w := newStuck(600 << 10)
	result := make(chan error, 1)
	go func() { result <- embed.AskBackup(t.Context(), one, w) }()
	w.hung(t, result)
	if err := embed.AskBackup(bounded(t), one, io.Discard); err == nil || !strings.Contains(err.Error(), "somebody else has a backup made here") {
		t.Errorf("a second one: %v", err)
	}
	close(w.on)
	must(t, <-result)
	must(t, embed.AskBackup(bounded(t), one, io.Discard))

	if err := embed.AskBackup(bounded(t), one, &full{left: 2}); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("on a full disk: %v", err)
	}
	one.Ensemble = "parcels"
	if err := embed.AskBackup(bounded(t), one, io.Discard); err == nil || !strings.Contains(err.Error(), `is of the ensemble "orders", the config says "parcels"`) {
		t.Errorf("of another ensemble: %v", err)
	}
	if err := embed.AskBackup(bounded(t), embed.Config{}, io.Discard); err == nil || !strings.Contains(err.Error(), "Join and Members are empty") {
		t.Errorf("of nobody: %v", err)
	}
	embedkit.CloseAll(t, nodes)
	if err := embed.AskBackup(bounded(t), asks, io.Discard); !errors.Is(err, embed.ErrUnavailable) {
		t.Errorf("of members that do not run: %v", err)
	}
}

// A stopped member's directory gives the same backup as the member did.
func TestBackup_OfADirectory(t *testing.T) {
	t.Parallel()
	ens := embedtest.New(t, 1, embedtest.Options{Config: func(c *embed.Config) {
		embedkit.Patient(c)
		c.Ensemble = "orders"
	}})
	s := ens.Session(1, embed.SessionOptions{})
	for i := range 100 {
		for _, p := range embedkit.Places() {
			_, err := s.Put(bounded(t), fmt.Sprintf("%s/%d", p, i%50), bytes.Repeat([]byte{byte(i)}, 10<<10))
			must(t, err)
		}
	}
	must(t, s.Close())
	var running, stopped bytes.Buffer
	_, err := ens.Node(1).Backup(bounded(t), &running)
	must(t, err)
	if _, err := offline.BackupDir(ens.Dir(1), io.Discard); err == nil {
		t.Error("a backup of the directory of a member that runs")
	}
	ens.Kill(1)
	info, err := offline.BackupDir(ens.Dir(1), &stopped)
	must(t, err)
	want, _ := read(t, running.Bytes())
	got, again := read(t, stopped.Bytes())
	if fmt.Sprint(again) != fmt.Sprint(info) || info.Ensemble != "orders" || info.Member != 1 {
		t.Errorf("%+v\n%+v", info, again)
	}
	for path, z := range want {
		if fmt.Sprint(got[path]) != fmt.Sprint(z) && path != tree.ConfigPath {
			t.Errorf("%s: %v, want %v", path, got[path], z)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d znodes, want %d", len(got), len(want))
	}
	if _, err := offline.BackupDir(t.TempDir(), io.Discard); !errors.Is(err, offline.ErrNoMember) {
		t.Error(err)
	}
}
