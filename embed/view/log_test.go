package view_test

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/view"
	"github.com/vivarium-go/vivarium/internal/testkit"
)

var changesFlag = flag.Int("changes", 0, "how many changes TestView_EveryChangeOfTheLog makes; zero means 2,500, or 10,000 by night")

// Views see every change of the log: none is missing, none comes twice, none is out of order, and
// each says what was there before and after. Many write at once. One member is cut off again and
// again, until it gets the state of another one. Some loops are slow.
//
// A view whose member is there and whose loop keeps up has neither a gap nor a repair. Everywhere
// else, what a repair or a gap leads to is the state after that transaction of the log.
func TestView_EveryChangeOfTheLog(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		const away, much = 3, 1 << 17
		n := cmp.Or(*changesFlag, 2500)
		if *changesFlag == 0 && testkit.Night() {
			n = 10_000
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute+time.Duration(n)*2*time.Millisecond)
		defer cancel()
		ens := embedtest.New(t, 3, embedtest.Options{
			KeepEntries: 1, Config: func(c *embed.Config) { c.Shards = 1 },
		})
		// Messages take time, so that commits take time in a bubble too. The cuts come in between.
		connect := func(a, b embed.MemberID) {
			ens.Faults(a).SetLink(b, embedtest.Link{Delay: 2 * time.Millisecond})
			ens.Faults(b).SetLink(a, embedtest.Link{Delay: 2 * time.Millisecond})
		}
		connect(1, 2)
		connect(1, away)
		connect(2, away)
		session := func(id embed.MemberID) *embed.Session {
			return ens.Session(id, embed.SessionOptions{Timeout: time.Minute})
		}
		plant(ctx, t, session(1), "/t")
		here, there, cut := session(1), session(2), session(away)
		b := newBook(12)
		all := func(string) bool { return true }
		var readers []*reader
		for _, c := range []struct {
			name   string
			s      *embed.Session
			o      view.Options[string]
			buffer int
			keep   func(string) bool
			pause  time.Duration // now and then
			exact  bool          // it keeps up
		}{
			{name: "all", s: here, o: view.Options[string]{History: much}, buffer: 1 << 15, exact: true},
			{
				name: "some", s: there, o: view.Options[string]{History: much, Keep: endsInA},
				buffer: 1 << 15, keep: endsInA, exact: true,
			},
			{name: "overflows", s: there, buffer: 40},
			{
				name: "slow", s: here, o: view.Options[string]{History: 100},
				buffer: 1 << 15, pause: 50 * time.Millisecond,
			},
			{name: "away", s: cut, o: view.Options[string]{History: much}, buffer: 1 << 15},
			{
				name: "away, some, and slow", s: cut, o: view.Options[string]{History: 100, Keep: endsInA},
				buffer: 100, keep: endsInA, pause: 20 * time.Millisecond,
			},
		} {
			must(t, syncOf(ctx, c.s))
			v, err := view.OpenBuffer(ctx, c.s, "/t", c.o, c.buffer)
			must(t, err)
			r := &reader{t: t, name: c.name, book: b, v: v, keep: c.keep, pause: c.pause, exact: c.exact}
			r.cut = c.s == cut && c.buffer == 1<<15
			if r.keep == nil {
				r.keep = all
			}
			readers = append(readers, r)
		}
		st, err := walk(ctx, here, "/t")
		must(t, err)
		b.open(st, readers)

		var reading, writing sync.WaitGroup
		for _, r := range readers {
			reading.Go(func() { r.read(ctx) })
		}
		for i := range b.upTo {
			s := session(embed.MemberID(i%2 + 1))
			writing.Go(func() { b.write(ctx, t, s, i, n) })
		}
		over := make(chan struct{})
		go func() {
			writing.Wait()
			close(over)
		}()
		cuts, rng := 0, testkit.Rand(t)
		for ended := false; !ended; cuts++ {
			select {
			case <-over:
				ended = true
			case <-time.After(time.Duration(rng.Int64N(int64(300 * time.Millisecond)))):
				ens.Isolate(away)
				<-time.After(time.Duration(rng.Int64N(int64(200 * time.Millisecond))))
				for _, id := range []embed.MemberID{1, 2} {
					must(t, ens.Snapshot(id))
				}
				connect(1, away)
				connect(2, away)
			}
		}
		end := b.end()
		for _, r := range readers {
			if err := r.v.Await(ctx, end); err != nil {
				t.Errorf("%s: %v", r.name, err)
			}
			_ = r.v.Close()
		}
		reading.Wait()
		t.Logf("%d changes of %d transactions, %d cuts", b.changes, len(b.pages), cuts)
		for _, r := range readers {
			t.Logf("%s: %d changes as they came, %d repairs, %d gaps", r.name, r.seen, r.repairs, r.gaps)
		}
	})
}

// A write is one operation of a transaction.
type write struct {
	kind embed.EventType
	path string
	data string
}

func (w write) op() embed.Op {
	switch w.kind {
	case embed.NodeCreated:
		return embed.OpCreate(w.path, []byte(w.data), embed.Persistent)
	case embed.NodeDeleted:
		return embed.OpDelete(w.path, embed.AnyVersion)
	}
	return embed.OpSet(w.path, []byte(w.data), embed.AnyVersion)
}

// An event is what is compared of a change.
type event struct {
	kind     embed.EventType
	path     string
	old, new shown
}

// A page is a transaction of the log.
type page struct {
	zxid   embed.Zxid
	writes []write
	events []event // which come of it, sorted
}

// A book is the log, as those know it who have written it.
type book struct {
	mu      sync.Mutex
	more    chan struct{}    // closed when there are more pages
	drafts  [][]page         // of each writer, not among the pages yet
	upTo    []embed.Zxid     // each writer has told all that it wrote until then
	whole   embed.Zxid       // pages has every transaction up to here
	pages   []page           // in the order of their zxids
	changes int              // in all pages
	state   map[string]shown // after the last page

	installed atomic.Bool // a view of the member that is cut off has repaired something
}

// ended is the upTo of a writer that has ended.
const ended = ^embed.Zxid(0)

func newBook(writers int) *book {
	return &book{
		more: make(chan struct{}), drafts: make([][]page, writers), upTo: make([]embed.Zxid, writers),
	}
}

// open begins the book and its readers at a state in which nobody writes.
func (b *book) open(st stage, readers []*reader) {
	b.state = make(map[string]shown)
	for path, s := range st.znodes {
		b.state["/t"+path] = s
	}
	for _, r := range readers {
		r.now, r.zxid = maps.Clone(b.state), r.v.Zxid()
		if got := r.shows(); !maps.Equal(got, r.kept(b.state)) {
			r.t.Errorf("%s opens with %v", r.name, got)
		}
	}
}

// write writes random transactions until there are so many changes, and a snapshot was installed.
func (b *book) write(ctx context.Context, t *testing.T, s *embed.Session, i, n int) {
	defer b.add(i, page{zxid: ended})
	rng := testkit.Rand(t)
	for count := 0; !b.has(n) || !b.installed.Load(); count++ {
		writes := randomWrites(ctx, s, rng)
		writes = append(writes, write{embed.NodeDataChanged, "/t/data", fmt.Sprint(i, "-", count)})
		ops := make([]embed.Op, len(writes))
		for j, w := range writes {
			ops[j] = w.op()
		}
		results, err := s.Submit(ctx, ops...).Result()
		if _, refused := errors.AsType[*embed.MultiError](err); refused {
			continue
		}
		if err != nil {
			t.Error(err)
			return
		}
		b.add(i, page{zxid: results[len(results)-1].Stat.Mzxid, writes: writes})
	}
}

// randomWrites returns some operations. Each of them makes sense by itself where the session is.
func randomWrites(ctx context.Context, s *embed.Session, rng *rand.Rand) (writes []write) {
	for range 1 + rng.IntN(6) {
		path := "/t/" + names[rng.IntN(len(names))]
		if rng.IntN(4) > 0 {
			path += fmt.Sprintf("/%02d%s", rng.IntN(60), names[rng.IntN(len(names))])
		}
		data := fmt.Sprint(rng.IntN(1_000_000))
		stat, there, _ := s.Exists(ctx, path)
		switch n := rng.IntN(10); {
		case !there && n == 0:
			writes = append(writes, write{embed.NodeCreated, path, ""},
				write{embed.NodeDataChanged, path, data}, write{embed.NodeDeleted, path, ""})
		case !there:
			writes = append(writes, write{embed.NodeCreated, path, data})
		case n < 5 || stat.NumChildren > 0:
			writes = append(writes, write{embed.NodeDataChanged, path, data})
		case n < 8:
			writes = append(writes, write{embed.NodeDeleted, path, ""})
		default:
			writes = append(writes,
				write{embed.NodeDeleted, path, ""}, write{embed.NodeCreated, path, data})
		}
	}
	return writes
}

// has reports whether there are so many changes.
func (b *book) has(n int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.changes >= n
}

// end returns the zxid of the last page.
func (b *book) end() embed.Zxid {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.pages[len(b.pages)-1].zxid
}

// add adds the next transaction of a writer. Pages come of those of which nobody can still tell an
// earlier one.
func (b *book) add(i int, p page) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.upTo[i] = p.zxid; p.zxid != ended {
		b.drafts[i] = append(b.drafts[i], p)
	}
	whole := slices.Min(b.upTo)
	if whole == b.whole {
		return
	}
	var next []page
	for i, drafts := range b.drafts {
		n := 0
		for n < len(drafts) && drafts[n].zxid <= whole {
			n++
		}
		next, b.drafts[i] = append(next, drafts[:n]...), drafts[n:]
	}
	slices.SortFunc(next, func(a, b page) int { return cmp.Compare(a.zxid, b.zxid) })
	for _, p := range next {
		p.events = b.apply(p)
		b.changes += len(p.events)
		b.pages = append(b.pages, p)
	}
	b.whole = whole
	close(b.more)
	b.more = make(chan struct{})
}

// apply applies a page to the state, and returns the events that come of it.
func (b *book) apply(p page) (events []event) {
	before := make(map[string]shown)
	for _, w := range p.writes {
		was, there := b.state[w.path]
		if _, known := before[w.path]; !known {
			before[w.path] = was // the zero one if there was none
		}
		switch {
		case w.kind == embed.NodeCreated && !there:
			b.state[w.path] = shown{w.data, p.zxid, p.zxid, 0}
		case w.kind == embed.NodeDataChanged && there:
			b.state[w.path] = shown{w.data, was.czxid, p.zxid, was.version + 1}
		case w.kind == embed.NodeDeleted && there:
			delete(b.state, w.path)
		default:
			panic(fmt.Sprintf("zxid %d: %v cannot have been applied to %v", p.zxid, w, was))
		}
	}
	for path, was := range before {
		events = append(events, difference(path, was, b.state[path])...)
	}
	sortEvents(events)
	return events
}

// difference returns what happened to a znode. The zero shown stands for none.
func difference(path string, was, is shown) []event {
	switch none := (shown{}); {
	case was == is:
		return nil
	case was == none:
		return []event{{embed.NodeCreated, path, none, is}}
	case is == none:
		return []event{{embed.NodeDeleted, path, was, none}}
	case was.czxid != is.czxid:
		return []event{{embed.NodeDeleted, path, was, none}, {embed.NodeCreated, path, none, is}}
	default:
		return []event{{embed.NodeDataChanged, path, was, is}}
	}
}

// sortEvents sorts by path. The events of one znode keep their order.
func sortEvents(events []event) {
	slices.SortStableFunc(events, func(a, b event) int { return strings.Compare(a.path, b.path) })
}

// from waits until the book is whole up to a zxid, and returns the pages from a number on.
func (b *book) from(ctx context.Context, number int, z embed.Zxid) []page {
	for {
		b.mu.Lock()
		whole, pages, more := b.whole, b.pages, b.more
		b.mu.Unlock()
		if whole >= z || ctx.Err() != nil {
			return pages[number:]
		}
		select {
		case <-more:
		case <-ctx.Done():
		}
	}
}

// A reader compares the changes of a view with the book.
type reader struct {
	t     *testing.T
	name  string
	book  *book
	v     *view.View[string]
	keep  func(path string) bool
	pause time.Duration
	exact bool
	cut   bool // its buffer is large, and its member is cut off

	page                int              // the next one
	zxid                embed.Zxid       // of the last change
	now                 map[string]shown // after the pages before
	seen, repairs, gaps int
}

// shows returns what the view shows.
func (r *reader) shows() map[string]shown {
	now := make(map[string]shown)
	for path, e := range r.v.All() {
		now[path] = shownOf(e)
	}
	return now
}

// kept returns what the view should show of a state.
func (r *reader) kept(state map[string]shown) map[string]shown {
	kept := maps.Clone(state)
	maps.DeleteFunc(kept, func(path string, _ shown) bool { return !r.keep(path) })
	return kept
}

// read reads until the view has ended, or until something is wrong.
func (r *reader) read(ctx context.Context) {
	for {
		err := r.readOn(ctx)
		if _, gap := errors.AsType[*embed.GapError](err); gap && !r.exact {
			r.gaps++
			err = r.restart(ctx)
		}
		if errors.Is(err, view.ErrClosed) {
			err = r.close(ctx)
			if err == nil {
				return
			}
		}
		if err != nil {
			r.t.Errorf("%s, after %d changes, at zxid %d: %v", r.name, r.seen, r.zxid, err)
			return
		}
	}
}

// readOn reads from the last change on.
func (r *reader) readOn(ctx context.Context) error {
	rng := testkit.Rand(r.t)
	var events []event
	for c, err := range r.v.Changes(ctx, r.zxid) {
		if err != nil {
			if len(events) > 0 {
				return fmt.Errorf("within a transaction: %w", err)
			}
			return err
		}
		e := event{kind: c.Type, path: c.Path}
		if c.Type != embed.NodeCreated {
			e.old = shownOf(c.Old)
		}
		if c.Type != embed.NodeDeleted {
			e.new = shownOf(c.New)
		}
		if events = append(events, e); !c.Last {
			continue
		}
		sortEvents(events)
		if err := r.compare(ctx, c.Zxid, c.Repaired, events); err != nil {
			return err
		}
		events = events[:0]
		if r.pause > 0 && rng.IntN(500) == 0 {
			<-time.After(time.Duration(rng.Int64N(int64(r.pause))))
		}
	}
	return errors.New("the sequence has no last error")
}

// compare compares what came of a transaction, or of a repair, with the book.
func (r *reader) compare(ctx context.Context, z embed.Zxid, repaired bool, got []event) error {
	if z <= r.zxid {
		return fmt.Errorf("zxid %d comes after %d", z, r.zxid)
	}
	was := r.now
	if repaired {
		was = r.kept(r.now)
		if r.repairs++; r.exact {
			return fmt.Errorf("a repair at zxid %d", z)
		}
		if r.cut {
			r.book.installed.Store(true)
		}
	}
	want, last := r.turn(ctx, z, !repaired)
	if repaired {
		want = nil
		is := r.kept(r.now)
		for path := range was {
			want = append(want, difference(path, was[path], is[path])...)
		}
		for path := range is {
			if _, known := was[path]; !known {
				want = append(want, difference(path, shown{}, is[path])...)
			}
		}
		sortEvents(want)
	} else if last != z {
		return fmt.Errorf("the log has no transaction %d; the one before it is %d", z, last)
	}
	if !slices.Equal(got, want) {
		return fmt.Errorf("zxid %d, repaired %v: got\n%v, want\n%v", z, repaired, got, want)
	}
	if r.zxid = z; !repaired {
		r.seen += len(got)
	}
	return nil
}

// turn turns all pages up to a zxid. It returns the zxid of the last one, and all that the view
// should have told of them, if it is asked to.
func (r *reader) turn(
	ctx context.Context, z embed.Zxid, tell bool,
) (want []event, last embed.Zxid) {
	for _, p := range r.book.from(ctx, r.page, z) {
		if p.zxid > z {
			break
		}
		r.page++
		last = p.zxid
		for _, e := range p.events {
			if e.new == (shown{}) {
				delete(r.now, e.path)
			} else {
				r.now[e.path] = e.new
			}
			if tell && r.keep(e.path) {
				want = append(want, e)
			}
		}
	}
	return want, last
}

// restart goes on after a gap with all that the view shows.
func (r *reader) restart(ctx context.Context) error {
	for {
		z := r.v.Zxid()
		got := r.shows()
		if z != r.v.Zxid() {
			continue // it has changed meanwhile
		}
		r.turn(ctx, z, false)
		if want := r.kept(r.now); !maps.Equal(got, want) {
			return fmt.Errorf("after a gap, at zxid %d: it shows\n%v, want\n%v", z, got, want)
		}
		r.zxid = z
		return nil
	}
}

// close checks that nothing was left to tell, and that the view shows the end of the log.
func (r *reader) close(ctx context.Context) error {
	if left, _ := r.turn(ctx, ended-1, true); len(left) > 0 {
		return fmt.Errorf("it has not told %d changes: %v", len(left), left[0])
	}
	if got, want := r.shows(), r.kept(r.now); !maps.Equal(got, want) {
		return fmt.Errorf("at the end it shows\n%v, want\n%v", got, want)
	}
	return nil
}
