package recipetest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/lock"
)

// A scene shows the model something wrong that it must find. Next to it stands a scene that is
// right and differs in that only.
type scene struct {
	name      string
	bad, good func(*model)
	want      string // part of what the model reports
}

// A pretender is a Hold that answers as it is told.
type pretender struct {
	err    error
	ctx    context.Context
	cancel context.CancelFunc
	open   chan struct{} // what Done returns; nil: the context's channel
}

func newPretender() *pretender {
	ctx, cancel := context.WithCancel(context.Background())
	return &pretender{ctx: ctx, cancel: cancel}
}

// say makes it answer with an error, or with none.
func (p *pretender) say(err error) {
	if p.err = err; err != nil {
		p.cancel()
	}
}

func (p *pretender) Err() error               { return p.err }
func (p *pretender) Context() context.Context { return p.ctx }

func (p *pretender) Done() <-chan struct{} {
	if p.open != nil {
		return p.open
	}
	return p.ctx.Done()
}

// given returns a grant on /l that has not ended.
func given(mode mode, token embed.Zxid) *grant {
	return &grant{who: fmt.Sprint("who has ", token), note: fmt.Sprint(token), paths: []string{"/l"}, mode: mode, permits: 1, hold: newPretender(),
		znode: fmt.Sprintf("/l/%d", token), token: lock.Token{Zxid: token}}
}

// over returns a grant that has ended.
func over(mode mode, token embed.Zxid) *grant {
	g := given(mode, token)
	g.hold.(*pretender).say(embed.ErrReleased)
	return g
}

// after returns g, whose caller saw first in the queue before.
func after(g, first *grant) *grant {
	g.saw = []string{first.note}
	return g
}

// down returns the grant of a reader that was a writer.
func down(token embed.Zxid, from *grant) *grant {
	g := over(shared, token)
	g.from = from
	return g
}

// loses returns a scene in which a Hold is lost, with a delay for all but an identity, and another
// caller is granted the lock.
func loses(why error, identity string) func(*model) {
	return func(m *model) {
		first, second := given(alone, 1), given(alone, 2)
		first.delay, first.identity, second.identity = time.Hour, "x", identity
		m.granted(first)
		m.held(first)
		first.hold.(*pretender).say(why)
		m.granted(second)
	}
}

// comesBack returns a scene in which a Hold is lost, its identity is granted a place, and another
// caller is granted the lock.
func comesBack(place embed.Zxid) func(*model) {
	return func(m *model) {
		back := over(alone, place)
		back.token.Local, back.identity = 3, "x"
		first := given(alone, 1)
		first.delay, first.identity = time.Hour, "x"
		m.granted(first)
		first.hold.(*pretender).say(embed.ErrSuspended)
		grants(back, given(alone, 4))(m)
	}
}

// grants returns a scene in which these grants are made, one after the other.
func grants(list ...*grant) func(*model) {
	return func(m *model) {
		for _, g := range list {
			m.granted(g)
		}
	}
}

// limited returns a scene with a limited number of permits.
func limited(most int, list ...*grant) func(*model) {
	return func(m *model) {
		m.limited("/l", most)
		grants(list...)(m)
	}
}

// asked makes a grant change its answer.
func asked(before, later error) func(*model) {
	return func(m *model) {
		g := given(alone, 1)
		m.granted(g)
		for _, err := range []error{before, later} {
			g.hold.(*pretender).say(err)
			m.held(g)
		}
	}
}

// written returns a scene in which guarded writes are applied. Each grant's write has the next
// zxid.
func written(list ...*grant) func(*model) {
	return func(m *model) {
		m.limited("/l", 1)
		for i, g := range list {
			m.wrote(g, "/l", embed.Zxid(i), false)
		}
		m.finish()
	}
}

func TestModel(t *testing.T) {
	lost := func(change func(*pretender)) func(*model) {
		return func(m *model) {
			g, p := given(alone, 1), newPretender()
			change(p)
			g.hold = p
			m.granted(g)
			p.say(embed.ErrReleased)
			m.held(g)
		}
	}
	whole := lost(func(*pretender) {})
	taken := func(m *model) {
		m.took("/l", "/l/1", "")
		grants(given(alone, 1), given(alone, 2))(m)
	}
	ended, held := over(alone, 1), given(alone, 1)
	w1, w2, r1, r2, c1, c2 := given(alone, 1), given(alone, 2), given(shared, 1), given(shared, 2), given(counted, 1), given(counted, 2)
	was := over(alone, 1)
	for _, s := range []scene{
		{"two hold at once", grants(given(alone, 1), given(alone, 2)), grants(over(alone, 1), given(alone, 2)), "still holds while"},
		{"one but the last holds still", grants(given(alone, 1), over(alone, 2), given(alone, 3)), grants(over(alone, 1), over(alone, 2), given(alone, 3)), "still holds while"},
		{"a writer beside a reader", grants(given(shared, 1), given(alone, 2)), grants(given(shared, 1), given(shared, 2)), "still holds while"},
		{"a reader beside a writer", grants(given(alone, 1), given(shared, 2)), grants(over(alone, 1), given(shared, 2)), "still holds while"},
		{"two hold at once, but nobody took one away", grants(given(alone, 1), given(alone, 2)), taken, "still holds while"},
		{"a token that does not grow", grants(over(alone, 2), given(alone, 1)), grants(over(alone, 1), given(alone, 2)), "granted after"},
		{"a grant that is recorded late, and holds", grants(given(alone, 2), given(alone, 1)), grants(given(alone, 2), over(alone, 1)), "granted after"},
		{"a token twice", grants(over(alone, 1), given(alone, 1)), grants(over(alone, 1), given(alone, 2)), "one token"},
		{"one that overtakes and is recorded first", grants(after(over(counted, 1), given(counted, 2)), over(counted, 2)), grants(after(over(counted, 2), given(counted, 1)), over(counted, 1)), "overtook"},
		{"one that overtakes and is recorded last", grants(over(counted, 2), after(over(counted, 1), given(counted, 2))), grants(over(counted, 1), after(over(counted, 2), given(counted, 1))), "overtook"},
		{"readers that share may", grants(over(shared, 2), after(over(alone, 1), given(shared, 2))), grants(over(shared, 2), after(over(shared, 1), given(shared, 2))), "overtook"},
		{"a writer between a writer and the reader it became", grants(was, over(alone, 2), down(3, was)), grants(was, down(2, was), over(alone, 3)), "came between"},
		{"such a writer, recorded last", grants(was, down(3, was), over(alone, 2)), grants(was, down(2, was), over(alone, 3)), "came between"},
		{"a permit too many", limited(1, given(counted, 1), given(counted, 2)), limited(1, over(counted, 1), given(counted, 2)), "2 permits"},
		{"a permit too many under a small limit", limited(1, given(counted, 1), given(counted, 2)), limited(2, given(counted, 1), given(counted, 2)), "2 permits"},
		{"a grant during the delay", loses(embed.ErrSuspended, "y"), loses(embed.ErrSuspended, "x"), "whose delay is"},
		{"a delay is for a lost Hold", loses(embed.ErrSessionExpired, ""), loses(embed.ErrReleased, ""), "whose delay is"},
		{"a delay to which nobody came back", comesBack(2), comesBack(1), "whose delay is"},
		{"a hold that ended revives", asked(embed.ErrSuspended, nil), asked(nil, embed.ErrSuspended), "holds again"},
		{"a hold ends and its context goes on", lost(func(p *pretender) { p.ctx = context.Background() }), whole, "Context goes on"},
		{"a hold ends and its channel stays open", lost(func(p *pretender) { p.open = make(chan struct{}) }), whole, "Done is open"},
		{"a release does nothing", func(m *model) { m.released(given(alone, 1), nil) }, func(m *model) { m.released(over(alone, 1), nil) }, "still holds"},
		{"everybody is gone but one", func(m *model) { grants(given(alone, 1))(m); m.finish() }, func(m *model) { grants(over(alone, 1))(m); m.finish() }, "everybody is gone"},
		{"a write after the end", func(m *model) { m.wrote(ended, "/l", 5, true) }, func(m *model) { m.wrote(ended, "/l", 5, false) }, "had ended before"},
		{"a write after one of the next", written(w1, w2, w1), written(w1, w1, w2), "after one of"},
		{"a write after a reader's", written(r2, w1), written(w1, r2), "after one of"},
		{"readers' may mix", written(r1, w2, r1), written(r1, r2, r1), "after one of"},
		{"writes of a permit too many", written(c1, c2, c1), written(c1, c1, c2, c2), "2 permits"},
		{"a register ahead", func(m *model) { m.read(held, "/l", lock.Token{Zxid: 2}) }, func(m *model) { m.read(held, "/l", lock.Token{Zxid: 1}) }, "in the register"},
	} {
		t.Run(s.name, s.play)
	}
}

// play checks that the model finds what is wrong, and nothing else.
func (s scene) play(t *testing.T) {
	if found := findings(s.bad); !strings.Contains(found, s.want) {
		t.Errorf("found %q, want %q", found, s.want)
	}
	if found := findings(s.good); found != "" {
		t.Errorf("found where all is well: %q", found)
	}
}

// findings shows a scene to a new model and returns what it finds.
func findings(scene func(*model)) string {
	var found strings.Builder
	m := newModel(func(format string, args ...any) { fmt.Fprintf(&found, format+"\n", args...) })
	scene(m)
	return found.String()
}

// A larger limit at any time between the call and the grant does not count against the grant. One
// before the call does.
func TestModel_Limits(t *testing.T) {
	for most, began := range map[string]bool{"3 before the call": false, "3 during the call": true} {
		found := findings(func(m *model) {
			m.limited("/l", 3)
			first, second := given(counted, 1), given(counted, 2)
			m.granted(first)
			if began {
				second.began = m.now()
			}
			m.limited("/l", 1)
			if !began {
				second.began = m.now()
			}
			m.granted(second)
		})
		if (found == "") != began {
			t.Errorf("%s: found %q", most, found)
		}
	}
}
