package operationtest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/internal/embedkit"
	"github.com/vivarium-go/vivarium/embed/internal/inside"
	"github.com/vivarium-go/vivarium/embed/lock"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/tree"
)

// A past is a backup, and what is known of the ensemble that it was made of.
type past struct {
	file   []byte
	znodes map[string]tree.Znode // what must come back
	newest embed.Zxid            // no zxid, session id or token that the ensemble gave is larger
}

// seed opens the backup, as Config.Seed.
func (p *past) seed(context.Context) (io.ReadCloser, error) {
	return io.NopCloser(bytes.NewReader(p.file)), nil
}

// newPast makes an ensemble with znodes of all kinds, and returns its backup.
func newPast(t *testing.T, shards int) *past {
	t.Helper()
	ctx := t.Context()
	ens := embedtest.New(t, 1, embedtest.Options{Config: func(c *embed.Config) { c.Shards = shards }})
	s := ens.Session(1, embed.SessionOptions{Auth: []embed.Auth{{Scheme: "digest", Credential: []byte("u:p")}}})
	p := &past{newest: embed.Zxid(s.ID())}
	create := func(path string, o embed.CreateOptions) {
		o.Parents = true
		_, stat, err := s.CreateWith(ctx, path, []byte("data of "+path), o)
		must(t, err)
		p.newest = max(p.newest, stat.Czxid)
	}
	for _, at := range embedkit.OnShard {
		create(at+"/a", embed.CreateOptions{})
		create(at+"/ro", embed.CreateOptions{ACL: embed.ReadACL()})
		create(at+"/a/b/c", embed.CreateOptions{})
		create(at+"/a!", embed.CreateOptions{ACL: embed.CreatorACL()})
		create(at+"/box", embed.CreateOptions{Mode: embed.Container})
		create(at+"/box/child", embed.CreateOptions{})
		create(at+"/ttl", embed.CreateOptions{Mode: embed.TTL, TTL: time.Hour})
		create(at+"/e", embed.CreateOptions{Mode: embed.Ephemeral})
		for range 5 {
			create(at+"/q/n-", embed.CreateOptions{Mode: embed.Sequential})
		}
		create(at+"/q/e-", embed.CreateOptions{Mode: embed.EphemeralSequential})
		must(t, s.Delete(ctx, at+"/q/n-0000000003", embed.AnyVersion))
		create(at+"-", embed.CreateOptions{Mode: embed.Sequential}) // children of the root with numbers
		create("/zookeeper/quota"+at+"/zookeeper_limits", embed.CreateOptions{})
		create("/zookeeper/quota"+at+"/zookeeper_stats", embed.CreateOptions{})
		hold, err := lock.NewMutex(s, at+"/lock").Lock(ctx)
		must(t, err)
		p.newest = max(p.newest, hold.Token().Zxid)
		must(t, hold.Release())
	}
	var file bytes.Buffer
	info, err := ens.Node(1).Backup(ctx, &file)
	must(t, err)
	p.file = file.Bytes()
	for _, shard := range info.Shards {
		p.newest = max(p.newest, shard.Zxid)
	}
	p.znodes, _ = read(t, p.file)
	maps.DeleteFunc(p.znodes, func(path string, z tree.Znode) bool { return z.Owner != 0 || path == tree.ConfigPath })
	must(t, s.Close())
	return p
}

// session opens a session with the rights that the past needs.
func (p *past) session(ens *embedtest.Ensemble, id embed.MemberID) *embed.Session {
	return ens.Session(id, embed.SessionOptions{Auth: []embed.Auth{{Scheme: "digest", Credential: []byte("u:p")}}})
}

// wantPast checks that all members have all of the past, and that what they give from now on is
// larger.
func wantPast(t *testing.T, ens *embedtest.Ensemble, p *past) {
	t.Helper()
	for _, id := range ens.Members() {
		ens.Ready(id)
		wantZnodes(t, p.session(ens, id), p)
	}
	for _, id := range ens.Members() {
		wantGrown(t, p.session(ens, id), p)
	}
}

// wantZnodes checks that a session sees all of the past and nothing else.
func wantZnodes(t *testing.T, s *embed.Session, p *past) {
	t.Helper()
	ctx := t.Context()
	defer s.Close()
	for path := range p.znodes {
		switch {
		case path == "/" || path == "/zookeeper" || path == "/zookeeper/quota":
		case strings.HasSuffix(path, "zookeeper_stats"): // the ephemerals do not count any more
			at, n := "/"+strings.Split(path, "/")[3], 0
			for path := range p.znodes {
				if path == at || strings.HasPrefix(path, at+"/") {
					n++
				}
			}
			if data, _, err := s.Get(ctx, path); !strings.HasPrefix(string(data), fmt.Sprintf("count=%d,", n)) {
				t.Errorf("%s is %s, want %d znodes, %v", path, data, n, err)
			}
		default:
			wantZnode(t, s, path, p.znodes)
		}
	}
	if n, err := s.CountDescendants(ctx, "/"); err != nil || n != len(p.znodes) { // without the root, with the config
		t.Errorf("%d znodes, want %d, %v", n, len(p.znodes), err)
	}
}

// wantGrown checks that the session's id, zxids, sequence numbers and tokens are larger than those
// of the past.
func wantGrown(t *testing.T, s *embed.Session, p *past) {
	t.Helper()
	ctx := t.Context()
	defer s.Close()
	if embed.Zxid(s.ID()) <= p.newest {
		t.Errorf("the session %#x comes after %#x", s.ID(), p.newest)
	}
	for _, at := range embedkit.OnShard {
		path, stat, err := s.CreateWith(ctx, fmt.Sprintf("%s/q/n-", at), nil, embed.CreateOptions{Mode: embed.EphemeralSequential})
		must(t, err)
		if stat.Czxid <= p.newest || path < at+"/q/n-0000000006" {
			t.Errorf("%s was created in %#x, after %#x", path, stat.Czxid, p.newest)
		}
		path, _, err = s.CreateWith(ctx, at+"-", nil, embed.CreateOptions{Mode: embed.EphemeralSequential})
		must(t, err)
		if _, was := p.znodes[path]; was {
			t.Errorf("%s has been there before", path)
		}
		hold, err := lock.NewMutex(s, at+"/lock").Lock(ctx)
		must(t, err)
		if hold.Token().Zxid <= p.newest {
			t.Errorf("%s: token %v comes after %#x", at, hold.Token(), p.newest)
		}
		must(t, hold.Release())
	}
}

// An ensemble of any number of members and shards begins with a backup of any number of shards. By
// day the number of shards changes; backups of as many shards are loaded by the tests below.
func TestSeed(t *testing.T) {
	for _, from := range []int{1, 4} {
		var p *past
		synctest.Test(t, func(t *testing.T) { p = newPast(t, from) })
		for _, members := range []int{1, 3, 5} {
			for _, shards := range []int{1, 4} {
				if from == shards && !testkit.Night() {
					continue
				}
				t.Run(fmt.Sprintf("%d shards to %d members with %d", from, members, shards), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						ens := embedtest.New(t, members, embedtest.Options{Config: func(c *embed.Config) { c.Shards, c.Seed = shards, p.seed }})
						for _, id := range ens.Members() {
							wantZnodes(t, p.session(ens, id), p)
						}
						for _, id := range ens.Members() { // the log, and the image, have it too
							ens.Stop(id)
							ens.Start(id)
							ens.Ready(id)
						}
						wantPast(t, ens, p)
					})
				})
			}
		}
	}
}

// inParts cuts the backup into many parts.
func inParts(c *embed.Config) { c.Inside = &inside.Seams{Part: 300} }

// parts returns how many parts a member has, of all shards together: the clock of a bubble makes a
// loading begin with a multiple of 1<<12.
func parts(n *embed.Node) (sum int) {
	for _, s := range n.Status().Shards {
		sum += int(s.Zxid % (1 << 12))
	}
	return sum
}

// Whoever loads is killed again and again, after every part. The others go on, and so does the
// killed one.
func TestSeed_KilledAtEveryPart(t *testing.T) {
	var p *past
	synctest.Test(t, func(t *testing.T) { p = newPast(t, 4) })
	for _, members := range []int{1, 3, 5} {
		for _, shards := range []int{1, 4} {
			if (members == 3) != (shards == 4) && !testkit.Night() {
				continue
			}
			t.Run(fmt.Sprintf("%d members, %d shards", members, shards), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					ens := embedtest.New(t, members, embedtest.Options{Stopped: true, Config: func(c *embed.Config) {
						inParts(c)
						c.Shards, c.Seed = shards, p.seed
					}})
					for _, id := range ens.Members() {
						ens.Start(id)
					}
					kills, seen := 0, make(map[int]int64)
					unready := func(id embed.MemberID) bool { return !ens.Node(id).Health().Ready }
					for slices.ContainsFunc(ens.Members(), unready) {
						<-time.After(time.Millisecond)
						for _, id := range ens.Members() {
							if shard := loading(ens.Node(id), seen); shard.Shard > 0 {
								ens.Kill(id)
								ens.Start(id)
								seen[shard.Shard] = shard.TreeSize
								kills++
							}
						}
					}
					wantPast(t, ens, p)
					if kills < 10 {
						t.Errorf("only %d times was somebody killed who loaded", kills)
					}
				})
			})
		}
	}
}

// A Peek has no session, and does not show a part of a backup, nor the empty tree before it.
func TestSeed_PeekShowsAllOrNothing(t *testing.T) {
	var p *past
	synctest.Test(t, func(t *testing.T) { p = newPast(t, 4) })
	for _, shards := range []int{1, 4} {
		synctest.Test(t, func(t *testing.T) {
			ens := embedtest.New(t, 3, embedtest.Options{Stopped: true, Config: func(c *embed.Config) {
				inParts(c)
				if c.Shards = shards; c.ID != 3 { // who has no backup is loaded like the others
					c.Seed = p.seed
				}
			}})
			var peeks sync.WaitGroup
			for _, id := range ens.Members() {
				n := ens.Start(id)
				peeks.Go(func() {
					for !n.Health().Ready {
						<-time.After(time.Millisecond)
						for path := range p.znodes {
							peekWhole(t, n, path, id == 3)
						}
					}
				})
			}
			for _, id := range ens.Members() {
				ens.Ready(id)
			}
			peeks.Wait() // what follows may take no time
			wantPast(t, ens, p)
		})
	}
}

// peekWhole looks for a znode of the past. A member without a backup may know only the ensemble
// before the loading began.
func peekWhole(t *testing.T, n *embed.Node, path string, mayBeBefore bool) {
	began := slices.ContainsFunc(n.Status().Shards, func(s embed.ShardStatus) bool { return s.Zxid >= 1<<32 })
	_, found, err := n.Peek().Exists(path)
	if err == nil && !found && (began || !mayBeBefore) {
		t.Errorf("%s, which the backup has, is said not to be there", path)
	}
}

// loading returns a shard that a member leads and has a part of that was not seen yet.
func loading(n *embed.Node, seen map[int]int64) embed.ShardStatus {
	status := n.Status()
	for _, s := range status.Shards {
		if status.Leading(s) && s.Zxid > 1<<32 && s.TreeSize > seen[s.Shard] && !n.Health().Ready {
			return s
		}
	}
	return embed.ShardStatus{}
}

// waits returns what a node that is not ready waits for.
func waits(n *embed.Node) string {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := n.Ready(ctx); err != nil {
		return err.Error()
	}
	return ""
}

// Nothing of a damaged backup is loaded, and nobody is let in. Once it is mended, it is loaded.
func TestSeed_ADamagedBackup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPast(t, 1)
		var mended atomic.Bool
		ens := embedtest.New(t, 3, embedtest.Options{Stopped: true, Config: func(c *embed.Config) {
			c.Seed = func(ctx context.Context) (io.ReadCloser, error) {
				if mended.Load() {
					return p.seed(ctx)
				}
				file := bytes.Clone(p.file)
				file[len(file)-100] ^= 1 // behind all records
				return io.NopCloser(bytes.NewReader(file)), nil
			}
		}})
		for _, id := range ens.Members() {
			ens.Start(id)
		}
		ens.Until("the damage is found", func() bool {
			return slices.ContainsFunc(ens.Members(), func(id embed.MemberID) bool {
				return strings.Contains(waits(ens.Node(id)), "damaged or incomplete backup")
			})
		})
		<-time.After(20 * time.Second)
		for _, id := range ens.Members() {
			n := ens.Node(id)
			_, err := n.NewSession(t.Context(), embed.SessionOptions{})
			if zxid := n.Status().Shards[0].Zxid; !errors.Is(err, embed.ErrUnavailable) || !strings.Contains(err.Error(), "Config.Seed") || zxid > 100 || n.Health().Ready {
				t.Errorf("member %d: %v, zxid %#x, %+v", id, err, zxid, n.Health())
			}
		}
		mended.Store(true)
		wantPast(t, ens, p)
	})
}

// Members without the backup hold nobody up, even if they lead.
func TestSeed_MembersWithoutIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPast(t, 4)
		ens := embedtest.New(t, 3, embedtest.Options{Stopped: true, Config: func(c *embed.Config) {
			inParts(c)
			if c.Shards = 4; c.ID == 2 {
				c.Seed = p.seed
			}
		}})
		for _, id := range ens.Members() {
			ens.Start(id)
		}
		ens.Ready(2)
		wantPast(t, ens, p)
	})
}

// begun starts all members and returns when some parts of the backup are loaded.
func begun(t *testing.T, ens *embedtest.Ensemble) {
	t.Helper()
	for _, id := range ens.Members() {
		ens.Start(id)
	}
	for {
		<-time.After(time.Millisecond)
		if n := ens.Node(1); n.Status().Shards[0].Zxid > 1<<32 && parts(n) >= 3 {
			return
		}
	}
}

// Parts of two backups never mix. A member with another one says which it has and which it should
// have. Nobody is let in.
func TestSeed_TwoBackups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, q := newPast(t, 1), newPast(t, 4)
		var other atomic.Bool
		ens := embedtest.New(t, 3, embedtest.Options{Stopped: true, Config: func(c *embed.Config) {
			inParts(c)
			c.Seed = func(ctx context.Context) (io.ReadCloser, error) {
				if other.Load() {
					return q.seed(ctx)
				}
				return p.seed(ctx)
			}
		}})
		begun(t, ens)
		for _, id := range ens.Members() {
			ens.Kill(id)
		}
		other.Store(true)
		for _, id := range ens.Members() {
			ens.Start(id)
		}
		sum := func(file []byte) string { return fmt.Sprintf("%x", sha256.Sum256(file)) }
		for _, id := range ens.Members() {
			ens.Until("both sums are named", func() bool {
				text := waits(ens.Node(id))
				return strings.Contains(text, sum(p.file)) && strings.Contains(text, sum(q.file))
			})
			if _, err := ens.Node(id).NewSession(t.Context(), embed.SessionOptions{}); !errors.Is(err, embed.ErrUnavailable) {
				t.Error(err)
			}
		}
		other.Store(false)
		wantPast(t, ens, p)
	})
}

// M97: a backup that changes while it is loaded is never taken for whole, and no part of the other
// one is loaded.
func TestSeed_ABackupThatChanges(t *testing.T) {
	for _, parts := range []func(*embed.Config){inParts, func(*embed.Config) {}} {
		synctest.Test(t, func(t *testing.T) {
			p, q := newPast(t, 1), newPast(t, 1)
			var opened atomic.Int32
			ens := embedtest.New(t, 1, embedtest.Options{Stopped: true, Config: func(c *embed.Config) {
				parts(c)
				c.Seed = func(ctx context.Context) (io.ReadCloser, error) {
					if opened.Add(1) == 2 { // first it is checked, then loaded
						return q.seed(ctx)
					}
					return p.seed(ctx)
				}
			}})
			ens.Start(1)
			ens.Until("it is noticed", func() bool { return strings.Contains(waits(ens.Node(1)), "not what it was") })
			wantPast(t, ens, p)
		})
	}
}

// Whoever was faster than the backup keeps what they have. Members with the backup say so, and
// serve.
func TestSeed_AClientIsFaster(t *testing.T) {
	for _, shards := range []int{1, 4} {
		for _, gone := range []bool{false, true} {
			if gone != (shards == 4) && !testkit.Night() {
				continue
			}
			t.Run(fmt.Sprintf("%d shards, gone %v", shards, gone), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					p, used := newPast(t, 1), make(chan struct{})
					ens := embedtest.New(t, 3, embedtest.Options{Stopped: true, Config: func(c *embed.Config) {
						c.Shards = shards
						if c.ID != 1 {
							c.Seed = func(ctx context.Context) (io.ReadCloser, error) {
								<-used
								return p.seed(ctx)
							}
						}
					}})
					for _, id := range ens.Members() {
						ens.Start(id)
					}
					ens.Ready(1)
					s := ens.Session(1, embed.SessionOptions{})
					_, err := s.Create(t.Context(), embedkit.OnShard[3], []byte("mine"), embed.Persistent)
					must(t, err)
					if gone { // nothing is left on the shard of the sessions
						must(t, s.Close())
					}
					close(used)
					for _, id := range []embed.MemberID{2, 3} {
						n := ens.Node(id)
						ens.Until("it is said", func() bool {
							ctx, cancel := context.WithTimeout(t.Context(), time.Second)
							defer cancel()
							return errors.Is(n.Ready(ctx), embed.ErrNotSeeded)
						})
						ens.Until("it serves", func() bool { return n.Health().Ready })
						s := ens.Session(id, embed.SessionOptions{})
						if data, _, err := s.Get(t.Context(), embedkit.OnShard[3]); string(data) != "mine" {
							t.Errorf("%q, %v", data, err)
						}
						must(t, s.Close())
					}
					<-time.After(20 * time.Second)
					for _, id := range ens.Members() {
						if n := ens.Node(id); n.Status().Shards[0].Zxid > 1000 || !n.Health().Ready {
							t.Errorf("member %d: %+v, %+v", id, n.Status(), n.Health())
						}
					}
				})
			})
		}
	}
}

// An ensemble that is empty again is not a new one.
func TestSeed_NotIntoAnEmptiedEnsemble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p atomic.Pointer[past]
		ens := embedtest.New(t, 1, embedtest.Options{Config: func(c *embed.Config) {
			if p.Load() != nil {
				c.Seed = p.Load().seed
			}
		}})
		s := ens.Session(1, embed.SessionOptions{})
		must(t, s.Close())
		<-time.After(5 * time.Second)
		p.Store(newPast(t, 1))
		ens.Stop(1)
		ens.Start(1)
		if err := ens.Node(1).Ready(t.Context()); !errors.Is(err, embed.ErrNotSeeded) {
			t.Error(err)
		}
	})
}

// A member that was away while most was loaded goes on from a snapshot in the middle.
func TestSeed_ASnapshotInTheMiddle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPast(t, 1)
		var missing atomic.Bool
		ens := embedtest.New(t, 3, embedtest.Options{Stopped: true, KeepEntries: 1, Config: func(c *embed.Config) {
			inParts(c)
			c.Seed = func(ctx context.Context) (io.ReadCloser, error) {
				if missing.Load() {
					return nil, errors.New("nobody has it")
				}
				return p.seed(ctx)
			}
		}})
		missing.Store(true)
		for _, id := range ens.Members() {
			ens.Start(id)
		}
		ens.Until("all to have founded", func() bool {
			return !slices.ContainsFunc(ens.Members(), func(id embed.MemberID) bool { return ens.ID(id) == 0 })
		})
		ens.Kill(3)
		missing.Store(false)
		for at := ens.Node(1); at.Status().Shards[0].Zxid < 1<<32 || parts(at) < 5; {
			<-time.After(time.Millisecond)
		}
		missing.Store(true)
		ens.Kill(1)
		ens.Kill(2)
		ens.Start(1)
		ens.Start(2)
		ens.Until("there is a leader again", func() bool { return ens.Leader() != 0 })
		<-time.After(5 * time.Second)
		for _, id := range []embed.MemberID{1, 2} {
			must(t, ens.Snapshot(id))
		}
		at := ens.Node(1).Status().Shards[0]
		if ens.Node(1).Health().Ready {
			t.Fatalf("it is not in the middle: %+v", at)
		}
		if _, err := ens.Node(1).Backup(t.Context(), io.Discard); !errors.Is(err, embed.ErrUnavailable) {
			t.Errorf("a backup of a part: %v", err)
		}
		ens.Start(3)
		ens.Until("it has caught up", func() bool { return ens.Node(3).Status().Shards[0].Zxid >= at.Zxid })
		if _, err := ens.Node(3).NewSession(t.Context(), embed.SessionOptions{}); !errors.Is(err, embed.ErrUnavailable) {
			t.Error(err)
		}
		missing.Store(false)
		wantPast(t, ens, p)
	})
}

// An ensemble that was seeded loads nothing again: a member that starts only compares the backup.
// Its own backup seeds the next one.
func TestSeed_Again(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPast(t, 4)
		var asked atomic.Int32
		var log embedkit.Record
		ens := embedtest.New(t, 1, embedtest.Options{Logger: slog.New(slog.NewJSONHandler(&log, nil)), Config: func(c *embed.Config) {
			c.Seed = func(ctx context.Context) (io.ReadCloser, error) {
				asked.Add(1)
				return p.seed(ctx)
			}
		}})
		asked.Store(0)
		ens.Stop(1)
		ens.Start(1)
		ens.Ready(1)
		<-time.After(time.Minute)
		if lines := log.Of(1, seedIgnored); asked.Load() != 1 || len(lines) > 0 {
			t.Errorf("it is asked %d times: %v", asked.Load(), lines)
		}
		s := ens.Session(1, embed.SessionOptions{})
		stat, err := s.Put(t.Context(), "/later", nil)
		must(t, err)
		var file bytes.Buffer
		_, err = ens.Node(1).Backup(t.Context(), &file)
		must(t, err)
		for _, from := range []*past{{file: file.Bytes()}, p} { // the clock is later, so even the old one gives larger zxids
			<-time.After(time.Minute)
			next := embedtest.New(t, 1, embedtest.Options{Config: func(c *embed.Config) { c.Seed = from.seed }})
			s := next.Session(1, embed.SessionOptions{})
			if embed.Zxid(s.ID()) <= stat.Czxid {
				t.Errorf("session %#x comes after %#x", s.ID(), stat.Czxid)
			}
			must(t, s.Close())
		}
	})
}

// hangingSeed is a backup of which nothing comes.
type hangingSeed struct{ end chan struct{} }

func (h hangingSeed) Read([]byte) (int, error) { <-h.end; return 0, io.EOF }
func (hangingSeed) Close() error               { return nil }

// An ensemble that has its backup needs the file no more. If reading it hangs, nothing waits.
func TestSeed_AFileThatHangsLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPast(t, 4)
		var late atomic.Bool
		h := hangingSeed{make(chan struct{})}
		defer close(h.end)
		ens := embedtest.New(t, 1, embedtest.Options{Config: func(c *embed.Config) {
			c.Seed = func(ctx context.Context) (io.ReadCloser, error) {
				if late.Load() {
					return h, nil
				}
				return p.seed(ctx)
			}
		}})
		late.Store(true)
		ens.Stop(1)
		ens.Start(1)
		ens.Ready(1)
		<-time.After(time.Minute) // by then it reads the file
		if err := ens.Node(1).Close(); err != nil {
			t.Error(err)
		}
	})
}
