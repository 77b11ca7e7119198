package group_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/group"
	"github.com/vivarium-go/vivarium/embed/value"
)

const config = "/config/rates"

var texts value.Codec[string]

// AwaitApplied returns when all members that are there have applied the value, and names those that
// have not. Members that are lost count as gone, newcomers apply what is newest.
func TestAwaitApplied(t *testing.T) {
	bubble(t, 3, 1, func(t *testing.T, ens *embedtest.Ensemble) {
		s := ens.Session(1, embed.SessionOptions{})
		v := value.New(s, config, texts)
		missing, err := group.AwaitApplied(t.Context(), s, config, 1)
		if err != nil || missing != nil { // nobody is there
			t.Fatal(missing, err)
		}
		var mu sync.Mutex
		now := make(map[string]string)
		slow := make(chan struct{})
		begin := func(id string, on embed.MemberID) (over chan error) {
			over = make(chan error, 1)
			n := ens.Node(on)
			go func() {
				over <- group.Follow(t.Context(), n, config, id, texts,
					func(ctx context.Context, x value.Versioned[string]) error {
						if id == "b" && x.Value == "2" {
							select {
							case <-slow:
							case <-ctx.Done():
								return ctx.Err()
							}
						}
						if x.Value == "bad" {
							return errors.New(id + " refuses")
						}
						mu.Lock()
						defer mu.Unlock()
						now[id] = x.Value
						return nil
					})
			}()
			return over
		}
		all := func() string {
			mu.Lock()
			defer mu.Unlock()
			return fmt.Sprint(now)
		}
		a := begin("a", 1)
		begin("b", 2)
		<-time.After(5 * time.Second) // there is no value yet
		one, err := v.Set(t.Context(), "1")
		must(t, err)
		ens.Until("both to apply it", func() bool { return all() == "map[a:1 b:1]" })
		_, err = group.AwaitApplied(within(t, minutes), s, config, one.Mzxid)
		must(t, err)
		two, err := v.Set(t.Context(), "2")
		must(t, err)
		missing, err = group.AwaitApplied(within(t, time.Minute), s, config, two.Mzxid)
		if !errors.Is(err, context.DeadlineExceeded) || fmt.Sprint(missing) != "[b]" {
			t.Fatal(missing, err)
		}
		begin("c", 3)
		close(slow)
		missing, err = group.AwaitApplied(within(t, minutes), s, config, two.Mzxid)
		if err != nil || missing != nil {
			t.Fatal(missing, err)
		}
		ens.Until("all to apply it", func() bool { return all() == "map[a:2 b:2 c:2]" })
		ens.Isolate(3)
		three, err := v.Set(t.Context(), "3")
		must(t, err)
		missing, err = group.AwaitApplied(within(t, time.Second), s, config, three.Mzxid)
		if !errors.Is(err, context.DeadlineExceeded) || fmt.Sprint(missing) != "[c]" {
			t.Fatal(missing, err)
		}
		_, err = group.AwaitApplied(within(t, minutes), s, config, three.Mzxid)
		must(t, err)
		if got := all(); got != "map[a:3 b:3 c:2]" {
			t.Error(got)
		}
		ens.HealAll()
		ens.Until("c to apply it", func() bool { return all() == "map[a:3 b:3 c:3]" })
		bad, err := v.Set(t.Context(), "bad")
		must(t, err)
		if err := <-a; err == nil || !strings.Contains(err.Error(), "a refuses") {
			t.Error(err)
		}
		_, err = group.AwaitApplied(within(t, minutes), s, config, bad.Mzxid) // nobody is there
		must(t, err)
		ens.Until("all to have left", func() bool { return len(children(t, s, config+"/members")) == 0 })
	})
}

// No member joins a rollout below its version, and one that is cut off learns it before the others
// go on. So once AwaitApplied has returned, nobody works with an earlier value. Members are cut
// off, stand still, are killed, and end and begin anew. In vespa#3388 the answer was whether all
// numbers were equal, not the least of them.
func TestAwaitApplied_NobodyIsBehind(t *testing.T) {
	bubble(t, 3, 1, func(t *testing.T, ens *embedtest.Ensemble) {
		ctx, stop := context.WithCancel(t.Context())
		starting := make(chan struct{}, 1) // held while a member is started
		node := func(id embed.MemberID) *embed.Node {
			starting <- struct{}{}
			defer func() { <-starting }()
			return ens.Node(id)
		}
		type use struct {
			ctx  context.Context
			zxid embed.Zxid
		}
		var mu sync.Mutex
		var floor embed.Zxid // for which AwaitApplied has returned
		uses := make(map[string]use)
		applied := 0
		check := func(who string) {
			if u := uses[who]; u.ctx != nil && u.zxid < floor && u.ctx.Err() == nil {
				t.Errorf("%s works with %d, although all have applied %d", who, u.zxid, floor)
			}
		}
		var wg sync.WaitGroup
		for i := range 6 {
			who := fmt.Sprint("m", i)
			wg.Go(func() {
				for round := 0; ctx.Err() == nil; round++ {
					life, end := context.WithTimeout(ctx, time.Duration(3+(i*7+round*5)%20)*time.Second)
					err := group.Follow(life, node(embed.MemberID(i%3+1)), config, who, texts,
						func(ctx context.Context, v value.Versioned[string]) error {
							mu.Lock()
							uses[who] = use{ctx, v.Mzxid}
							check(who)
							applied++
							mu.Unlock()
							select {
							case <-time.After(time.Duration(i) * 30 * time.Millisecond):
							case <-ctx.Done():
							}
							return nil
						})
					end()
					mu.Lock()
					delete(uses, who)
					mu.Unlock()
					if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) &&
						!errors.Is(err, embed.ErrFailed) {
						t.Error(who, err)
					}
					<-time.After(time.Second)
				}
			})
		}
		rollouts := 0
		wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				on := embed.MemberID(i%3 + 1)
				s, err := node(on).NewSession(ctx, embed.SessionOptions{})
				if err != nil {
					<-time.After(time.Second)
					continue
				}
				short, end := context.WithTimeout(ctx, 30*time.Second)
				v, err := value.New(s, config, texts).Set(short, fmt.Sprint(i))
				if err == nil {
					if _, err = group.AwaitApplied(short, s, config, v.Mzxid); err == nil {
						mu.Lock()
						rollouts++
						floor = max(floor, v.Mzxid)
						for who := range uses {
							check(who)
						}
						mu.Unlock()
					}
				}
				end()
				_ = s.Close()
			}
		})
		for round := range 9 {
			<-time.After(7 * time.Second)
			id := embed.MemberID(round%3 + 1)
			switch round % 3 {
			case 0:
				ens.Isolate(id)
				<-time.After(15 * time.Second)
				ens.HealAll()
			case 1:
				ens.Pause(id)
				<-time.After(12 * time.Second)
				ens.Resume(id)
			case 2:
				starting <- struct{}{}
				ens.Kill(id)
				ens.Restart(id)
				<-starting
			}
		}
		<-time.After(20 * time.Second)
		stop()
		wg.Wait()
		t.Logf("%d rollouts, %d values applied", rollouts, applied)
		if rollouts < 10 || applied < 60 {
			t.Errorf("%d rollouts, %d values applied", rollouts, applied)
		}
	})
}

// A member that has joined and has yet to apply its first value has applied nothing.
func TestAwaitApplied_WaitsForTheFirstValue(t *testing.T) {
	bubble(t, 1, 1, func(t *testing.T, ens *embedtest.Ensemble) {
		s := ens.Session(1, embed.SessionOptions{})
		v, err := value.New(s, config, texts).Set(t.Context(), "1")
		must(t, err)
		apply := make(chan struct{})
		go group.Follow(t.Context(), ens.Opener(1), config, "a", texts,
			func(ctx context.Context, _ value.Versioned[string]) error {
				select {
				case <-apply:
				case <-ctx.Done():
				}
				return nil
			})
		ens.Until("it to join", func() bool { return len(children(t, s, config+"/members")) == 1 })
		missing, err := group.AwaitApplied(within(t, time.Minute), s, config, v.Mzxid)
		if !errors.Is(err, context.DeadlineExceeded) || fmt.Sprint(missing) != "[a]" {
			t.Fatal(missing, err)
		}
		_, err = s.Set(t.Context(), config+"/members/a", []byte("?"),
			embed.AnyVersion) // which is no number
		must(t, err)
		missing, err = group.AwaitApplied(within(t, time.Minute), s, config, v.Mzxid)
		if !errors.Is(err, context.DeadlineExceeded) || fmt.Sprint(missing) != "[a]" {
			t.Fatal(missing, err)
		}
		close(apply)
		_, err = group.AwaitApplied(within(t, minutes), s, config, v.Mzxid)
		must(t, err)
	})
}

// A node that is cut off does not show the members that have joined meanwhile. It waits until it
// does.
func TestAwaitApplied_OnANodeThatIsBehind(t *testing.T) {
	bubble(t, 3, 1, func(t *testing.T, ens *embedtest.Ensemble) {
		behind := ens.Session(3, embed.SessionOptions{Timeout: time.Minute})
		ens.Isolate(3)
		apply := make(chan struct{})
		v, err := value.New(ens.Session(1, embed.SessionOptions{}), config, texts).Set(t.Context(), "1")
		must(t, err)
		joined := make(chan struct{}, 1)
		go group.Follow(t.Context(), ens.Opener(1), config, "a", texts,
			func(ctx context.Context, _ value.Versioned[string]) error {
				joined <- struct{}{}
				select {
				case <-apply:
				case <-ctx.Done():
				}
				return nil
			})
		select {
		case <-joined:
		case <-time.After(minutes):
			t.Fatal("it does not join")
		}
		_, err = group.AwaitApplied(within(t, 30*time.Second), behind, config, v.Mzxid)
		wantErr(t, err, context.DeadlineExceeded)
		ens.HealAll()
		missing, err := group.AwaitApplied(within(t, 30*time.Second), behind, config, v.Mzxid)
		if !errors.Is(err, context.DeadlineExceeded) || fmt.Sprint(missing) != "[a]" {
			t.Fatal(missing, err)
		}
		close(apply)
		_, err = group.AwaitApplied(within(t, minutes), behind, config, v.Mzxid)
		must(t, err)
	})
}

// A member that joins reads the value anew. Here the value changes while the member's node is cut
// off, after the member has looked at it and before it has joined. AwaitApplied returns meanwhile.
func TestFollow_TheValueChangesBeforeItJoins(t *testing.T) {
	bubble(t, 3, 1, func(t *testing.T, ens *embedtest.Ensemble) {
		ens.TransferLeadership(1)
		s := ens.Session(1, embed.SessionOptions{})
		v := value.New(s, config, texts)
		old, err := v.Set(t.Context(), "old")
		must(t, err)
		must(t, ens.Session(3, embed.SessionOptions{}).Await(t.Context(), config, old.Mzxid))
		got := make(chan string, 10)
		cut := openerFunc(func(ctx context.Context, o embed.SessionOptions) (*embed.Session, error) {
			o.Timeout = time.Minute
			s, err := ens.Opener(3).NewSession(ctx, o)
			ens.Isolate(3)
			return s, err
		})
		go group.Follow(t.Context(), cut, config, "a", texts,
			func(_ context.Context, x value.Versioned[string]) error {
				got <- x.Value
				return nil
			})
		<-time.After(2 * time.Second) // its create is on its way
		now, err := v.Set(t.Context(), "new")
		must(t, err)
		missing, err := group.AwaitApplied(within(t, time.Minute), s, config, now.Mzxid)
		if err != nil || missing != nil {
			t.Fatal(missing, err)
		}
		ens.HealAll()
		select {
		case x := <-got:
			if x != "new" {
				t.Errorf("it applies %q", x)
			}
		case <-time.After(minutes):
			t.Fatal("it applies nothing")
		}
	})
}

type openerFunc func(context.Context, embed.SessionOptions) (*embed.Session, error)

// NewSession implements embed.Opener.
func (f openerFunc) NewSession(
	ctx context.Context, o embed.SessionOptions,
) (*embed.Session, error) {
	return f(ctx, o)
}

// Somebody deletes a member's znode, and another member gets its place. The first one is cut off,
// so it does not know, and tells what it has applied. That must not count for the other one.
func TestFollow_TellsOfItsOwnZnodeOnly(t *testing.T) {
	bubble(t, 3, 1, func(t *testing.T, ens *embedtest.Ensemble) {
		const member = config + "/members/a"
		ens.TransferLeadership(1)
		s := ens.Session(1, embed.SessionOptions{})
		_, err := value.New(s, config, texts).Set(t.Context(), "x")
		must(t, err)
		begun, apply := make(chan struct{}, 10), make(chan struct{})
		from := embed.OpenerWith(ens.Opener(3), embed.SessionOptions{Timeout: time.Minute})
		go group.Follow(t.Context(), from, config, "a", texts,
			func(ctx context.Context, _ value.Versioned[string]) error {
				begun <- struct{}{}
				select {
				case <-apply:
				case <-ctx.Done():
				}
				return nil
			})
		select {
		case <-begun:
		case <-time.After(minutes):
			t.Fatal("it does not join")
		}
		ens.Isolate(3)
		must(t, s.Delete(t.Context(), member, embed.AnyVersion))
		_, err = s.Create(t.Context(), member, make([]byte, 8), embed.Ephemeral)
		must(t, err)
		close(apply)
		<-time.After(time.Second) // what it tells is on its way
		ens.HealAll()
		<-time.After(10 * time.Second)
		data, stat, err := s.Get(t.Context(), member)
		if err != nil || string(data) != string(make([]byte, 8)) || stat.Version != 0 {
			t.Errorf("the other member is said to have applied %x, %v", data, err)
		}
	})
}

// Follow ends with what cannot succeed, and leaves nothing.
func TestFollow_Ends(t *testing.T) {
	bubble(t, 1, 1, func(t *testing.T, ens *embedtest.Ensemble) {
		n, s := ens.Node(1), ens.Session(1, embed.SessionOptions{})
		nothing := func(context.Context, value.Versioned[int]) error { return nil }
		ints := value.JSON[int]()
		for path, want := range map[string]error{"": embed.ErrInvalidPath, "x": embed.ErrInvalidPath,
			"/x/": embed.ErrInvalidPath} {
			wantErr(t, group.Follow(t.Context(), n, path, "a", ints, nothing), want)
			_, err := group.AwaitApplied(t.Context(), s, path, 1)
			wantErr(t, err, want)
		}
		for _, id := range []string{"", "a/b"} {
			wantErr(t, group.Follow(t.Context(), n, config, id, ints, nothing), embed.ErrInvalidArgument)
		}
		wantErr(t, group.Follow(within(t, time.Minute), n, config, "a", ints, nothing),
			context.DeadlineExceeded) // there is no value
		_, err := value.New(s, config, texts).Set(t.Context(), "17")
		must(t, err)
		wantErr(t, group.Follow(within(t, time.Minute), n, config, "..", ints, nothing),
			embed.ErrInvalidPath)
		ctx, cancel := context.WithCancel(t.Context())
		got := make(chan context.Context, 10)
		over := make(chan error, 1)
		go func() {
			over <- group.Follow(ctx, n, config, "a", ints,
				func(ctx context.Context, v value.Versioned[int]) error {
					got <- ctx
					return nil
				})
		}()
		first := <-got
		wantErr(t, group.Follow(within(t, minutes), n, config, "a", ints, nothing), group.ErrTaken)
		must(t, s.Delete(t.Context(), config+"/members/a", embed.AnyVersion))
		second := <-got // it joins again
		wantErr(t, context.Cause(first), embed.ErrDeleted)
		must(t, second.Err())
		cancel()
		wantErr(t, <-over, context.Canceled)
		wantErr(t, second.Err(), context.Canceled)
		go func() { over <- group.Follow(t.Context(), n, config, "a", ints, nothing) }()
		ens.Until("it to join", func() bool { return len(children(t, s, config+"/members")) == 1 })
		_, err = value.New(s, config, texts).Set(t.Context(), "{")
		must(t, err)
		if err := <-over; err == nil || !strings.Contains(err.Error(), "decode") {
			t.Error(err)
		}
		if names := children(t, s, config+"/members"); len(names) > 0 {
			t.Errorf("it left %v", names)
		}
	})
}

// A member whose machine has slept learns at its next question that its membership may be over. The
// ctx of apply has the values of Follow's.
func TestFollow_ComparesTheClock(t *testing.T) {
	bubble(t, 3, 1, func(t *testing.T, ens *embedtest.Ensemble) {
		_, err := value.New(ens.Session(2, embed.SessionOptions{}), config, texts).Set(t.Context(), "1")
		must(t, err)
		type key struct{}
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "mine"))
		defer cancel()
		got := make(chan context.Context, 10)
		over := make(chan error, 1)
		go func() {
			over <- group.Follow(ctx, ens.Node(1), config, "a", texts,
				func(ctx context.Context, _ value.Versioned[string]) error {
					got <- ctx
					return nil
				})
		}()
		using := <-got
		must(t, using.Err())
		if using.Value(key{}) != "mine" {
			t.Error("the ctx of apply has not the values of Follow's")
		}
		ens.Faults(1).Sleep(2 * embed.DefaultSessionTimeout) // no timer notices that
		wantErr(t, using.Err(), context.Canceled)
		wantErr(t, context.Cause(using), embed.ErrSuspended)
		cancel()
		wantErr(t, <-over, context.Canceled)
	})
}
