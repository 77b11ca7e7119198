package tree

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/vivarium-go/vivarium/internal/testkit"
)

// The hammer's writer makes a state that follows from the zxid alone. So readers know what to
// expect at any zxid:
//
//	/left, /right      two amounts whose sum is always hammerSum; every transaction moves some by a
//	                   multi
//	/coin/a, /coin/b   exactly one exists; every transaction with an even zxid deletes one and
//	                   creates the other
//	/gen               deleted and created again with its child at every zxid divisible by 8
//	/queue             one more contender in each transaction, hammerQueue of them at a time
const (
	hammerSum          = 1_000_000
	hammerQueue        = 50
	hammerTransactions = 10_000
	hammerReaders      = 4
)

func amountAt(z Zxid) uint64 { return uint64(z) * 7919 % hammerSum }

func coinAt(z Zxid) string {
	if z/2%2 == 0 {
		return "/coin/a"
	}
	return "/coin/b"
}

func amount(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

// A hammer is one writer and many readers on one tree. Under the race detector it also shows that
// nothing visible to readers is written.
type hammer struct {
	t    *testing.T
	tree *Tree
	done chan struct{}
}

// D4: Readers see the state at one zxid or at the next, never a mixture. Meanwhile a znode changes
// in every transaction, and is deleted and created again.
func TestHammer(t *testing.T) {
	h := &hammer{t: t, tree: New(nil), done: make(chan struct{})}
	h.begin()
	seed := testkit.Seed(t)
	var readers sync.WaitGroup
	exact := make([]int, hammerReaders)
	for i := range hammerReaders {
		readers.Go(func() {
			r := hammerReader{hammer: h, rnd: rand.New(rand.NewPCG(seed, uint64(i)))}
			r.readLoop()
			exact[i] = r.exact
		})
	}
	h.write()
	close(h.done)
	readers.Wait()
	if err := h.tree.check(); err != nil {
		t.Fatal(err)
	}
	t.Logf("rounds in which nothing was published, per reader: %v", exact)
	if slices.Max(exact) == 0 {
		t.Error("no reader ever finished a round between two transactions")
	}
}

// begin makes the state at zxid 1.
func (h *hammer) begin() {
	ops := []Op{
		{Kind: KindCreate, Path: "/left", Data: amount(amountAt(1))},
		{Kind: KindCreate, Path: "/right", Data: amount(hammerSum - amountAt(1))},
		{Kind: KindCreate, Path: "/coin"},
		{Kind: KindCreate, Path: coinAt(1)},
		{Kind: KindCreate, Path: "/gen"},
		{Kind: KindCreate, Path: "/gen/child"},
		{Kind: KindCreate, Path: "/queue"},
	}
	for range hammerQueue {
		ops = append(ops, Op{Kind: KindCreate, Path: "/queue/n-", Mode: Sequential})
	}
	h.apply(1, ops)
}

func (h *hammer) write() {
	for z := Zxid(2); z <= hammerTransactions; z++ {
		ops := []Op{
			{Kind: KindSet, Path: "/left", Data: amount(amountAt(z)), Version: AnyVersion},
			{Kind: KindSet, Path: "/right", Data: amount(hammerSum - amountAt(z)), Version: AnyVersion},
			{Kind: KindCreate, Path: "/queue/n-", Mode: Sequential},
			{Kind: KindDelete, Path: sequentialPath("/queue/n-", int32(z-2)), Version: AnyVersion},
		}
		if was, is := coinAt(z-1), coinAt(z); was != is {
			ops = append(ops, Op{Kind: KindDelete, Path: was, Version: AnyVersion}, Op{Kind: KindCreate, Path: is})
		}
		if z%8 == 0 {
			ops = append(ops,
				Op{Kind: KindDelete, Path: "/gen/child", Version: AnyVersion},
				Op{Kind: KindDelete, Path: "/gen", Version: AnyVersion},
				Op{Kind: KindCreate, Path: "/gen"},
				Op{Kind: KindCreate, Path: "/gen/child"})
		}
		h.apply(z, ops)
	}
}

func (h *hammer) apply(z Zxid, ops []Op) {
	if z%5 == 0 { // a failed transaction must leave no trace
		bad := append(slices.Clone(ops), Op{Kind: KindCreate, Path: "/fresh"}, Op{Kind: KindCreate, Path: "/coin"})
		if _, err := h.tree.Apply(Header{Zxid: z}, bad); err == nil {
			h.t.Error("a bad transaction succeeded")
		}
	}
	if _, err := h.tree.Apply(Header{Zxid: z, Time: int64(z)}, ops); err != nil {
		h.t.Errorf("zxid %d: %v", z, err)
	}
	h.tree.Publish()
	if z%16 == 0 {
		if err := h.tree.Drain(func(string, Znode, bool) error { return nil }); err != nil {
			h.t.Error(err)
		}
	}
}

// A hammerReader remembers the newest zxid it has seen. Nothing that it reads later may be older.
type hammerReader struct {
	*hammer
	rnd   *rand.Rand
	seen  Zxid
	exact int // rounds that began and ended at the same visible zxid
}

func (r *hammerReader) readLoop() {
	for !r.t.Failed() {
		select {
		case <-r.done:
			r.round()
			return
		default:
			r.round()
			runtime.Gosched() // with fewer processors than readers, the writer would hardly run
		}
	}
}

// round reads everything once, in random order.
func (r *hammerReader) round() {
	from := r.tree.Visible()
	r.see("visible", from, 1)
	var coins int
	reads := []func(){r.readAmounts, r.readGen, r.readQueue, func() { coins = r.readCoins(from) }}
	r.rnd.Shuffle(len(reads), func(i, j int) { reads[i], reads[j] = reads[j], reads[i] })
	for _, read := range reads {
		read()
	}
	if r.tree.Visible() != from {
		return
	}
	r.exact++
	if coins != 1 {
		r.t.Errorf("zxid %d: %d coins", from, coins)
	}
	if _, stat, _ := r.tree.Get("/left"); r.tree.Visible() == from && stat.Mzxid != from {
		r.t.Errorf("zxid %d: shows an amount of %d", from, stat.Mzxid)
	}
}

// see records that a read showed a change made at z. Such changes happen at every zxid that is a
// multiple of every. If a later one of them was already seen, this read was too old.
func (r *hammerReader) see(what string, z, every Zxid) {
	if z/every < r.seen/every {
		r.t.Errorf("%s: shows zxid %d after %d was seen", what, z, r.seen)
	}
	r.seen = max(r.seen, z)
}

// readAmounts reads both amounts, one by one. They change in every transaction, so each tells its
// zxid.
func (r *hammerReader) readAmounts() {
	paths := []string{"/left", "/right"}
	if r.rnd.IntN(2) == 0 {
		slices.Reverse(paths)
	}
	for _, path := range paths {
		data, stat, err := r.tree.Get(path)
		if err != nil {
			r.t.Errorf("%s: %v", path, err)
			return
		}
		r.see(path, stat.Mzxid, 1)
		want := amountAt(stat.Mzxid)
		if path == "/right" {
			want = hammerSum - want
		}
		if got := binary.BigEndian.Uint64(data); got != want || stat.Version != int32(stat.Mzxid-1) {
			r.t.Errorf("%s: %d in version %d at zxid %d, want %d", path, got, stat.Version, stat.Mzxid, want)
		}
	}
}

// readCoins returns how many coins it saw. They must be what the zxids that it may have read at
// say.
func (r *hammerReader) readCoins(from Zxid) int {
	n := 0
	for _, path := range []string{"/coin/a", "/coin/b"} {
		stat, ok := r.tree.Exists(path)
		to := r.tree.Visible()
		if ok {
			n++
			r.see(path, stat.Czxid, 2)
		}
		if from == to && ok != (coinAt(from) == path) {
			r.t.Errorf("%s: existence %v at zxid %d", path, ok, from)
		}
	}
	names, stat, err := r.tree.Children("/coin")
	r.see("/coin", stat.Pzxid, 2)
	if err != nil || len(names) != 1 || stat.NumChildren != 1 || "/coin/"+names[0] != coinAt(stat.Pzxid) {
		r.t.Errorf("/coin: %q %v at zxid %d", names, err, stat.Pzxid)
	}
	return n
}

// readGen reads a znode that is deleted and created again in one transaction. No reader may find it
// missing.
func (r *hammerReader) readGen() {
	for _, path := range []string{"/gen", "/gen/child"} {
		stat, ok := r.tree.Exists(path)
		if !ok {
			r.t.Errorf("%s: missing", path)
			return
		}
		r.see(path, stat.Czxid, 8)
	}
	if _, ok := r.tree.Exists("/fresh"); ok {
		r.t.Error("/fresh: left over from a failed transaction")
	}
}

// readQueue reads the contenders, and the one before another.
func (r *hammerReader) readQueue() {
	names, stat, err := r.tree.Children("/queue")
	if err != nil || len(names) != hammerQueue {
		r.t.Errorf("/queue: %d names, %v", len(names), err)
		return
	}
	r.see("/queue", stat.Pzxid, 1)
	for i, name := range names {
		if want := sequentialPath("n-", int32(stat.Pzxid)-1+int32(i)); name != want {
			r.t.Errorf("/queue: name %d is %s at zxid %d, want %s", i, name, stat.Pzxid, want)
		}
	}
	i := r.rnd.IntN(len(names))
	before, ok, err := r.tree.Before("/queue/"+names[i], "n-")
	to := r.tree.Visible()
	switch {
	case err != nil:
		if to < stat.Pzxid+Zxid(i)+1 {
			r.t.Errorf("%s is gone at zxid %d", names[i], to)
		}
	case ok:
		if i > 0 && before != names[i-1] {
			r.t.Errorf("before %s is %s, want %s", names[i], before, names[i-1])
		}
	case to < stat.Pzxid+Zxid(i):
		r.t.Errorf("nobody before %s at zxid %d", names[i], to)
	}
}

// D4: A reader may be delayed between loading the visible zxid and the chain of versions, for any
// number of transactions. It still finds an answer.
func TestLateReaderLoadsAgain(t *testing.T) {
	tree, h := newTree(t, 1)
	const path = "/dir/node-0000000000"
	e := tree.index.get(path)
	for i := range 5 {
		tree.must(t, h, Op{Kind: KindSet, Path: path, Data: []byte(fmt.Sprint(i)), Version: AnyVersion})
	}
	if _, _, late := e.at(h.Zxid - 1); late {
		t.Error("the version before the newest is gone before anybody could have read it")
	}
	if _, _, late := e.at(h.Zxid - 2); !late {
		t.Error("a reader two transactions behind was not told so")
	}
	if v := tree.find(path); v == nil || string(v.data) != "4" {
		t.Errorf("found %+v", v)
	}
}
