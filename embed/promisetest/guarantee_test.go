package promisetest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/internal/embedkit"
	"github.com/vivarium-go/vivarium/embed/lock"
	"github.com/vivarium-go/vivarium/internal/testkit"
)

// D4: on each shard, writers move a value between two znodes by Multi. Readers on every member
// read the one, then the other. Each znode holds its share and the number of the move. So a
// reader notices a sum that never existed, and a state older than one that it has seen.
func TestGuarantee_Atomic(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) { hammer(t, embedtest.New(t, 3, embedtest.Options{})) })
}

// The same while members take snapshots all the time: the rules of log, image and readers meet.
func TestGuarantee_SingleImage(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{})
		stop := make(chan struct{})
		var wg sync.WaitGroup
		for _, id := range ens.Members() {
			wg.Go(func() {
				tick := time.NewTicker(5 * time.Millisecond)
				defer tick.Stop()
				for {
					select {
					case <-stop:
						return
					case <-tick.C:
						_ = ens.Snapshot(id) // fails while another is under way
					}
				}
			})
		}
		defer wg.Wait()
		defer close(stop)
		hammer(t, ens)
	})
}

const (
	total = 1000
	// between is how many other znodes a move sets between the two. A move that showed bit
	// by bit would do so long enough to be read.
	between = 40
	// readsAtOnce is how many pairs a reader reads before it lets others run.
	readsAtOnce = 100
)

// beat waits for the next millisecond. So readers and writers begin together, in virtual time too.
func beat() { <-time.After(time.Until(time.Now().Truncate(time.Millisecond).Add(time.Millisecond))) }

func share(move, amount uint64) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, move), amount)
}

func readShare(t *testing.T, ctx context.Context, s *embed.Session, path string) (move, amount uint64, stat embed.Stat) {
	t.Helper()
	data, stat, err := s.Get(ctx, path)
	if err != nil {
		t.Error(err)
		return 0, 0, stat
	}
	return binary.BigEndian.Uint64(data), binary.BigEndian.Uint64(data[8:]), stat
}

func hammer(t *testing.T, ens *embedtest.Ensemble) {
	moves := 300
	if testkit.Night() {
		moves = 900
	}
	// It computes more than it waits, so a busy machine takes long.
	ctx, cancel := context.WithTimeout(t.Context(), 10*testkit.Patience)
	defer cancel()
	setup := ens.Session(1, embed.SessionOptions{})
	banks := embedkit.Places()
	for _, bank := range banks {
		founding := []embed.Op{embed.OpCreate(bank, nil, embed.Persistent),
			embed.OpCreate(bank+"/a", share(0, total), embed.Persistent), embed.OpCreate(bank+"/b", share(0, 0), embed.Persistent)}
		for i := range between {
			founding = append(founding, embed.OpCreate(fmt.Sprint(bank, "/between-", i), nil, embed.Persistent))
		}
		if _, err := setup.Multi(ctx, founding...); err != nil {
			t.Fatal(err)
		}
	}
	each := moves / len(ens.Members()) / len(banks)
	var done atomic.Bool
	var readers, writers sync.WaitGroup
	for _, id := range ens.Members() {
		// With the race detector a busy machine may keep a member from its heartbeats for long.
		s := ens.Session(id, embed.SessionOptions{Timeout: time.Minute})
		if _, err := s.Sync(ctx, "/"); err != nil {
			t.Fatal(err)
		}
		for i := range max(2, len(banks)) {
			readers.Go(func() { readPairs(t, ctx, s, banks[i%len(banks)], &done) })
		}
		for _, bank := range banks {
			writers.Go(func() { movePairs(t, ctx, s, bank, each, uint64(id)) })
		}
	}
	writers.Wait()
	done.Store(true)
	readers.Wait()
	s := ens.Session(2, embed.SessionOptions{})
	if _, err := s.Sync(ctx, "/"); err != nil {
		t.Fatal(err)
	}
	for _, bank := range banks {
		if _, a, stat := readShare(t, ctx, s, bank+"/a"); int(stat.Version) != each*len(ens.Members()) {
			t.Errorf("%s/a was set %d times and holds %d, want %d moves", bank, stat.Version, a, each*len(ens.Members()))
		}
	}
}

func movePairs(t *testing.T, ctx context.Context, s *embed.Session, bank string, n int, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 1))
	for done := 0; done < n; {
		beat()
		move, _, stat := readShare(t, ctx, s, bank+"/a")
		amount := rng.Uint64N(total + 1)
		ops := []embed.Op{embed.OpSet(bank+"/b", share(move+1, total-amount), embed.AnyVersion)}
		for i := range between {
			ops = append(ops, embed.OpSet(fmt.Sprint(bank, "/between-", i), nil, embed.AnyVersion))
		}
		// The operation that may be refused is last: then all others have to be undone.
		_, err := s.Multi(ctx, append(ops, embed.OpSet(bank+"/a", share(move+1, amount), stat.Version))...)
		switch {
		case err == nil:
			done++
		case errors.Is(err, embed.ErrBadVersion): // another writer was faster
		default:
			t.Error(err)
			return
		}
	}
}

func readPairs(t *testing.T, ctx context.Context, s *embed.Session, bank string, done *atomic.Bool) {
	var last uint64
	reads := 0
	for first, second := bank+"/a", bank+"/b"; !done.Load(); first, second = second, first {
		move1, amount1, stat1 := readShare(t, ctx, s, first)
		move2, amount2, stat2 := readShare(t, ctx, s, second)
		switch {
		case move1 < last:
			t.Errorf("read move %d after move %d", move1, last)
		case move2 < move1 || stat2.Mzxid < stat1.Mzxid:
			t.Errorf("read move %d (zxid %d) after move %d (zxid %d)", move2, stat2.Mzxid, move1, stat1.Mzxid)
		case move1 == move2 && (amount1+amount2 != total || stat1.Mzxid != stat2.Mzxid):
			t.Errorf("move %d: read %d and %d of zxids %d and %d, half a Multi", move1, amount1, amount2, stat1.Mzxid, stat2.Mzxid)
		}
		if t.Failed() {
			return
		}
		last = move2
		if reads++; reads%readsAtOnce == 0 {
			beat()
		}
	}
}

// A follower creates znodes, 1,024 at a time, while the leadership of one shard after the other
// changes: to that follower, away from it again, and between the others while it does not hear the
// old leader. Proposals are lost with the leader to which they were forwarded, or with their own
// member's leadership. Some that were not lost are sent again. The test ends when each kind of
// change has met open creates three times: open when the old leader was gone, and still open when
// the new leader was there.
//
// (dragonboat#264: what a follower passes on may be lost on the way, and its caller learns it by a
// timeout only.)
func TestGuarantee_ExactlyOnce(t *testing.T) {
	t.Parallel()
	const delay = 10 * time.Millisecond
	testkit.Bubble(t, func(t *testing.T) {
		b := burst{names: make(map[string]string)}
		heard := make(chan change, 1024)
		ens := embedtest.New(t, 3, embedtest.Options{
			Config: func(c *embed.Config) {
				if c.ID == 1 {
					c.Events.LeaderChanged = func(l embed.LeaderChange) { heard <- change{l, b.open()} }
				}
			},
		})
		apart(ens, delay)
		ctx := bounded(t)
		b.s = ens.Session(1, embed.SessionOptions{Timeout: time.Minute})
		b.parents = embedkit.Places()
		for _, p := range b.parents {
			if _, err := b.s.Create(ctx, p, nil, embed.Persistent); err != nil {
				t.Fatal(err)
			}
		}
		ens.TransferLeadership(2)
		stop := b.start(ctx, t)
		met := make(map[string]int)
		for n := 0; met["gained"] < 3 || met["lost"] < 3 || met["unheard"] < 3; n++ {
			shard := n%len(b.parents) + 1
			from, to, kind := leaderOf(ens, shard), embed.MemberID(1), "gained"
			switch {
			case from == 1:
				to, kind = 3, "lost"
			case met["unheard"] <= met["gained"]:
				to, kind = 5-from, "unheard"
				ens.Faults(from).SetLink(1, embedtest.Link{Cut: true})
				if !behind(ens, shard, 1, from) {
					apart(ens, delay)
					continue
				}
			}
			before, after := transfer(ctx, t, shard, ens.Node(1), ens.Node(from), to, heard)
			apart(ens, delay)
			open := 0
			for caller, n := range before.open {
				if after.open[caller] == n && b.parent(caller) == b.parents[shard-1] {
					open++
				}
			}
			t.Logf("leadership of shard %d %s: %d creates were open when member %d led no more, %d of those on it when member %d did", shard, kind, len(before.open), from, open, to)
			if open > 0 {
				met[kind]++
			}
		}
		stop()
		b.check(ctx, t)
	})
}

// leaderOf waits until most members agree on a leader of a shard, and returns it. A leader that
// comes and goes by itself has to hand over to one that stays.
func leaderOf(ens *embedtest.Ensemble, shard int) (leader embed.MemberID) {
	ens.Until("a leader", func() bool {
		votes := make(map[embed.ShardStatus]int)
		for _, id := range ens.Members() {
			s := ens.Node(id).Status().Shards[shard-1]
			vote := embed.ShardStatus{Leader: s.Leader, Term: s.Term}
			if votes[vote]++; s.Leader != 0 && votes[vote] > len(ens.Members())/2 {
				leader = s.Leader
				if !slices.Contains(ens.Members(), leader) {
					_ = ens.Node(id).TransferLeadership(shard, id) // or another one is under way
				}
				return slices.Contains(ens.Members(), leader)
			}
		}
		return false
	})
	return leader
}

// behind waits until a member that does not hear the leader is left behind: the others have
// committed something that the member asked for, and it does not know. It returns false if the
// leader no longer leads, which happens on a busy machine; the member itself may lead.
func behind(ens *embedtest.Ensemble, shard int, member, leader embed.MemberID) (ahead bool) {
	status := func(id embed.MemberID) embed.ShardStatus { return ens.Node(id).Status().Shards[shard-1] }
	last := status(member).Zxid
	ens.Until("the others to be ahead", func() bool {
		before, now := last, status(leader)
		last = status(member).Zxid
		ahead = last == before && now.Zxid > last
		return ahead || now.Leader != leader
	})
	return ahead
}

// A change is a change of leader as a member hears of it, with the creates that are open at that
// moment.
type change struct {
	embed.LeaderChange
	open map[int]int64
}

// transfer gives a shard's leadership to a member. It returns the last two changes of which another
// member, the observer, heard: first that the old leader is gone, then that the new one is there.
// If the observer heard of fewer, the changes have no creates.
func transfer(ctx context.Context, t *testing.T, shard int, observer, leader *embed.Node, to embed.MemberID, heard <-chan change) (before, after change) {
	t.Helper()
	old := observer.Status().Shards[shard-1]
	again := time.NewTicker(100 * time.Millisecond)
	defer again.Stop()
	for old.Leader != to {
		_ = leader.TransferLeadership(shard, to) // another request may be under way
		for asked := true; asked; {
			select {
			case c := <-heard:
				if c.Shard != shard || c.Term <= old.Term {
					continue // another change, or an earlier one
				}
				if before, after = after, c; c.Leader == to {
					return before, after
				}
			case <-again.C:
				asked = false
			case <-ctx.Done():
				t.Fatalf("member %d does not lead", to)
			}
		}
	}
	return change{}, change{}
}

// A burst is many callers of one session that create sequential znodes, each caller one after the
// other.
type burst struct {
	s       *embed.Session
	parents []string
	calls   [1024]atomic.Int64 // begins plus ends of each caller's calls; odd while one is open

	mu    sync.Mutex
	names map[string]string // acknowledged znodes and their data
}

// parent returns the znode below which a caller creates.
func (b *burst) parent(caller int) string { return b.parents[caller%len(b.parents)] }

// start makes the callers create until stop is called. stop returns when all have returned.
func (b *burst) start(ctx context.Context, t *testing.T) (stop func()) {
	var enough atomic.Bool
	var wg sync.WaitGroup
	for i := range b.calls {
		wg.Go(func() {
			for !enough.Load() {
				data := fmt.Sprint(i, "/", b.calls[i].Add(1))
				name, err := b.s.Create(ctx, b.parent(i)+"/job-", []byte(data), embed.EphemeralSequential)
				b.calls[i].Add(1)
				if err != nil {
					t.Errorf("create %s: %v", data, err)
					return
				}
				b.mu.Lock()
				if other, twice := b.names[name]; twice {
					t.Errorf("%s was given to %s and to %s", name, other, data)
				}
				b.names[name] = data
				b.mu.Unlock()
			}
		})
	}
	return func() {
		enough.Store(true)
		wg.Wait()
	}
}

// open returns the creates without an outcome at this moment, by caller.
func (b *burst) open() map[int]int64 {
	open := make(map[int]int64)
	for i := range b.calls {
		if n := b.calls[i].Load(); n%2 == 1 {
			open[i] = n
		}
	}
	return open
}

// check compares what was acknowledged with what exists.
func (b *burst) check(ctx context.Context, t *testing.T) {
	t.Helper()
	made := 0
	for _, p := range b.parents {
		children, stat, err := b.s.Children(ctx, p)
		if err != nil {
			t.Fatal(err)
		}
		if len(children) != int(stat.Cversion) {
			t.Errorf("%s has %d children after %d creations", p, len(children), stat.Cversion)
		}
		made += len(children)
	}
	if made != len(b.names) {
		t.Errorf("%d children, want %d", made, len(b.names))
	}
	for name, want := range b.names {
		if data, _, err := b.s.Get(ctx, name); err != nil || string(data) != want {
			t.Errorf("%s holds %q, %v; want %q", name, data, err, want)
		}
	}
}

// A chain is a sequence of writes to one znode. Each checks that the previous one was applied.
type chain struct {
	path      string
	pending   chan *embed.Pending
	submitted atomic.Int64
	oldest    atomic.Int64 // the oldest write without an outcome
}

// open returns the oldest write without an outcome. If two calls return the same write, it was open
// all the time in between.
func (c *chain) open() map[int]int64 {
	open := make(map[int]int64)
	if n := c.oldest.Load(); n < c.submitted.Load() {
		open[0] = n
	}
	return open
}

// judge compares the outcomes with the expected ones, and stops the writes after a wrong one.
func (c *chain) judge(t *testing.T, enough *atomic.Bool) {
	var last embed.Zxid
	for p := range c.pending {
		results, err := p.Result()
		n := c.oldest.Add(1) - 1
		if err != nil {
			t.Errorf("%s: write %d: %v", c.path, n, err)
			enough.Store(true)
			continue
		}
		if z := results[0].Stat.Mzxid; z <= last {
			t.Errorf("%s: write %d has zxid %d after %d", c.path, n, z, last)
		} else {
			last = z
		}
	}
}

// One session submits without waiting on every shard, while the leaderships are transferred one
// after the other, also to and from the session's member. Each write checks that the previous one
// on its shard was applied. The test ends after three transfers in each direction that have met
// open writes: open when the old leader was gone, and still open when the new leader was there.
func TestGuarantee_Ordered(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		const ahead = 2000 // writes without an outcome; many more would be refused
		var chains []*chain
		for _, p := range embedkit.Places() {
			chains = append(chains, &chain{path: p, pending: make(chan *embed.Pending, ahead)})
		}
		heard := make(chan change, 1024)
		ens := embedtest.New(t, 3, embedtest.Options{Config: func(c *embed.Config) {
			if c.ID == 1 {
				c.Events.LeaderChanged = func(l embed.LeaderChange) {
					if l.Shard <= len(chains) {
						heard <- change{l, chains[l.Shard-1].open()}
					}
				}
			}
		}})
		apart(ens, 10*time.Millisecond)
		ctx := bounded(t)
		s := ens.Session(1, embed.SessionOptions{Timeout: time.Minute})
		var enough atomic.Bool
		var judges sync.WaitGroup
		for _, c := range chains {
			if _, err := s.Create(ctx, c.path, nil, embed.Persistent); err != nil {
				t.Fatal(err)
			}
			judges.Go(func() { c.judge(t, &enough) })
		}
		go func() {
			for i := int32(0); !enough.Load(); i++ {
				for _, c := range chains {
					c.pending <- s.Submit(ctx, embed.OpSet(c.path, fmt.Append(nil, i), i))
					c.submitted.Add(1)
				}
			}
			for _, c := range chains {
				close(c.pending)
			}
		}()
		met := make(map[bool]int) // by whether member 1 gained the leadership
		for transfers := 0; (met[true] < 3 || met[false] < 3) && !enough.Load(); transfers++ {
			shard, round := transfers%len(chains)+1, transfers/len(chains)
			from, to := leaderOf(ens, shard), embed.MemberID(1)
			if from == 1 {
				to = embed.MemberID(2 + round/2%2)
			}
			before, after := transfer(ctx, t, shard, ens.Node(1), ens.Node(from), to, heard)
			if n, open := before.open[0]; open && n == after.open[0] && len(after.open) > 0 {
				met[to == 1]++
			}
		}
		enough.Store(true)
		judges.Wait()
		for _, c := range chains {
			writes := c.submitted.Load()
			t.Logf("%s: %d writes", c.path, writes)
			if data, stat, err := s.Get(ctx, c.path); err != nil || string(data) != fmt.Sprint(writes-1) || int64(stat.Version) != writes {
				t.Errorf("%s: got %q, version %d, %v", c.path, data, stat.Version, err)
			}
		}
	})
}

// A write that one member acknowledged is read on another after a Sync of its path, or of "/". This
// holds at once, and while leaders change.
func TestGuarantee_LinearizableSync(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{})
		apart(ens, time.Millisecond)
		ctx := bounded(t)
		var sessions []*embed.Session
		for _, id := range ens.Members() {
			sessions = append(sessions, ens.Session(id, embed.SessionOptions{Timeout: time.Minute}))
		}
		paths := embedkit.Places()
		for _, p := range paths {
			if _, err := sessions[0].Create(ctx, p, nil, embed.Persistent); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 300 {
			if i%100 == 50 {
				ens.TransferLeadership(ens.Leader()%3 + 1)
			}
			want, path := fmt.Sprint(i), paths[i%len(paths)]
			if _, err := sessions[i%3].Set(ctx, path, []byte(want), embed.AnyVersion); err != nil {
				t.Fatal(err)
			}
			reader, synced := sessions[(i+1)%3], path
			if i/len(paths)%2 == 1 {
				synced = "/"
			}
			zxid, err := reader.Sync(ctx, synced)
			if err != nil {
				t.Fatal(err)
			}
			data, stat, err := reader.Get(ctx, path)
			if err != nil || string(data) != want || stat.Mzxid > zxid && (synced == path || len(paths) == 1) {
				t.Fatalf("read %q of zxid %d, %v after a Sync of %s at %d; want %q", data, stat.Mzxid, err, synced, zxid, want)
			}
		}
	})
}

const (
	// watchedSets is how many sets, on all places together, are watched.
	watchedSets = 500
	// watchedAhead is by how many sets the writer may be ahead of a follower. A follower counts
	// some sets twice, between its watch and its first read. Together they fit into a watch's
	// buffer, however long the follower waits to run.
	watchedAhead = embedkit.WatchBuffer / 4
)

// A follower tells how many of the sets it has seen, counted from the first.
type follower struct{ seen atomic.Int64 }

// D1, D3: watches of one znode and of all znodes, and a reader on the same member. When the reader
// sees a change, its event can be received.
func TestGuarantee_WatchNoGap(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{})
		apart(ens, time.Millisecond)
		ctx := bounded(t)
		paths := embedkit.Places()
		writer := ens.Session(1, embed.SessionOptions{})
		for _, p := range paths {
			if _, err := writer.Create(ctx, p, nil, embed.Persistent); err != nil {
				t.Fatal(err)
			}
		}
		var wg sync.WaitGroup
		var followers []*follower
		follow := func(s *embed.Session, on string, mode embed.WatchMode, paths ...string) {
			f := new(follower)
			followers = append(followers, f)
			wg.Go(func() {
				defer f.seen.Store(watchedSets)
				watchAll(t, ctx, s, f, on, mode, paths...)
			})
		}
		for _, id := range ens.Members() {
			s := ens.Session(id, embed.SessionOptions{})
			if _, err := s.Sync(ctx, "/"); err != nil {
				t.Fatal(err)
			}
			for _, p := range paths {
				follow(s, p, embed.WatchPersistent, p)
			}
			follow(s, "/", embed.WatchRecursive, paths...)
		}
		for i := range watchedSets {
			ens.Until("the followers to follow", func() bool {
				return !slices.ContainsFunc(followers, func(f *follower) bool { return f.seen.Load() < int64(i-watchedAhead) })
			})
			if _, err := writer.Set(ctx, paths[i%len(paths)], fmt.Append(nil, i), embed.AnyVersion); err != nil {
				t.Fatal(err)
			}
		}
		for _, p := range paths {
			if err := writer.Delete(ctx, p, embed.AnyVersion); err != nil {
				t.Fatal(err)
			}
		}
		wg.Wait()
	})
}

// watchAll follows znodes with one watch until they are deleted. It checks that the watch tells of
// every version once, in order, and of none later than a read shows it, and that a read after an
// event shows the change.
func watchAll(t *testing.T, ctx context.Context, s *embed.Session, f *follower, on string, mode embed.WatchMode, paths ...string) {
	w, err := s.Watch(ctx, on, mode)
	if err != nil {
		t.Error(err)
		return
	}
	defer w.Close()
	told, last, want := make(map[string]int), make(map[string]embed.Zxid), make(map[string]int)
	share := int64(len(embedkit.Places()) / len(paths)) // one set in this many is of its paths
	for _, p := range paths {
		_, from, err := s.Get(ctx, p)
		if err != nil {
			t.Error(err)
			return
		}
		last[p], want[p] = w.Zxid(), watchedSets/len(embedkit.Places())+1-int(from.Version)
		f.seen.Add(int64(from.Version) * share)
	}
	left := len(paths)
	note := func(e embed.Event, ok bool) bool {
		if !ok || e.Zxid <= last[e.Path] || e.Type == embed.NodeChildrenChanged {
			t.Errorf("watch of %s: event %v after zxid %d, the stream says %v", on, e, last[e.Path], w.Err())
			return false
		}
		last[e.Path] = e.Zxid
		told[e.Path]++
		f.seen.Add(share)
		if e.Type == embed.NodeDeleted {
			left--
		}
		return left > 0
	}
	for {
		e, ok := <-w.Events()
		if !note(e, ok) {
			break
		}
		stat, exists, err := s.Exists(ctx, e.Path)
		if err != nil {
			t.Error(err)
			return
		}
		if exists && (stat.Mzxid < e.Zxid || e.Type == embed.NodeDeleted) {
			t.Errorf("watch of %s: after %v, a read shows zxid %d", on, e, stat.Mzxid)
			return
		}
		for last[e.Path] < stat.Mzxid { // the stream has every change that this read shows
			select {
			case e, ok := <-w.Events():
				if !note(e, ok) {
					return
				}
			default:
				t.Errorf("a read of %s shows zxid %d, the stream ends at %d", e.Path, stat.Mzxid, last[e.Path])
				return
			}
		}
	}
	for p, n := range want {
		if !t.Failed() && told[p] < n {
			t.Errorf("told of %d changes of %s, want %d", told[p], p, n)
		}
	}
}

// E1: tokens grow with every grant on a path, even if the path is deleted, the leader changes, and
// everything restarts.
func TestGuarantee_Fenced(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{})
		ctx := bounded(t)
		last := make(map[string]lock.Token)
		grant := func(id embed.MemberID) {
			t.Helper()
			s := ens.Session(id, embed.SessionOptions{})
			defer s.Close()
			for _, p := range embedkit.Places() {
				h, err := lock.NewMutex(s, p+"/lock").Lock(ctx)
				if err != nil {
					t.Fatal(err)
				}
				if h.Token().Compare(last[p]) <= 0 {
					t.Errorf("%s: token %v after %v", p, h.Token(), last[p])
				}
				last[p] = h.Token()
				if err := h.Release(); err != nil {
					t.Error(err)
				}
			}
		}
		grant(1)
		grant(2)
		s := ens.Session(1, embed.SessionOptions{})
		for _, p := range embedkit.Places() {
			if err := s.Delete(ctx, p+"/lock", embed.AnyVersion); err != nil {
				t.Fatal(err)
			}
		}
		grant(3)
		ens.TransferLeadership(ens.Leader()%3 + 1)
		grant(1)
		for _, id := range ens.Members() {
			ens.Kill(id)
		}
		for _, id := range ens.Members() {
			ens.Start(id)
		}
		for _, id := range ens.Members() {
			ens.Ready(id)
		}
		grant(2)
	})
}

// Contenders of all members queue one after the other, on every shard. They are served in that
// order.
func TestGuarantee_Fair(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{})
		apart(ens, time.Millisecond)
		ctx := bounded(t)
		var sessions []*embed.Session
		for _, id := range ens.Members() {
			sessions = append(sessions, ens.Session(id, embed.SessionOptions{Timeout: time.Minute}))
		}
		const contenders = 32
		queues := embedkit.Places()
		var first []*lock.Hold
		served := make(map[string]chan int)
		for i, p := range queues {
			queues[i] = p + "/queue"
			h, err := lock.NewMutex(sessions[0], queues[i]).Lock(ctx)
			if err != nil {
				t.Fatal(err)
			}
			first = append(first, h)
			served[queues[i]] = make(chan int, contenders)
		}
		var wg sync.WaitGroup
		for i := range contenders {
			s, queue := sessions[i%3], queues[i%len(queues)]
			wg.Go(func() {
				h, err := lock.NewMutex(s, queue).Lock(ctx)
				if err != nil {
					t.Error(err)
					return
				}
				served[queue] <- i
				if err := h.Release(); err != nil {
					t.Error(err)
				}
			})
			ens.Until("the contender to queue", func() bool {
				names, _, err := s.Children(ctx, queue)
				return err == nil && len(names) == i/len(queues)+2
			})
		}
		for _, h := range first {
			if err := h.Release(); err != nil {
				t.Fatal(err)
			}
		}
		wg.Wait()
		for i := range contenders {
			if got := <-served[queues[i%len(queues)]]; got != i {
				t.Fatalf("contender %d was served in place %d", got, i)
			}
		}
	})
}
