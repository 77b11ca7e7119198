package campaign

import (
	"cmp"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/lock"
)

func granted(token embed.Zxid, from, until int, writes ...guarded) grant {
	h := holding{Kind: kindMutex, Token: lock.Token{Zxid: token}, Asked: time.Duration(from) - 1, From: time.Duration(from), Until: time.Duration(until), Guarded: writes}
	return grant{Path: "/l", Member: 1, holding: h}
}

// as returns a grant of another kind.
func as(k holdKind, g grant) grant {
	g.Kind = k
	return g
}

// some returns a grant of permits.
func some(n int, g grant) grant {
	g.Permits = n
	return as(kindPermit, g)
}

func TestFindDoubleGrants(t *testing.T) {
	of := func(g ...grant) past { return past{Grants: g} }
	hold(t, findDoubleGrants, []badHistory{
		{"two hold at once", of(granted(1, 10, 30), granted(2, 20, 40)), of(granted(1, 10, 19), granted(2, 20, 40)), "while"},
		{"the last but one still holds", of(granted(1, 10, 35), granted(2, 50, 0), granted(3, 30, 40)), of(granted(1, 10, 25), granted(2, 50, 0), granted(3, 30, 40)), "while"},
		{"two grants have one token", of(granted(1, 10, 15), granted(1, 20, 25)), of(granted(1, 10, 15), granted(2, 20, 25)), "the same token"},
		{"a reader is in with a writer", of(as(kindWrite, granted(1, 10, 30)), as(kindRead, granted(2, 20, 40))), of(as(kindWrite, granted(1, 10, 19)), as(kindRead, granted(2, 20, 40))), "while"},
		{"a writer is in with a reader", of(as(kindRead, granted(1, 10, 30)), as(kindWrite, granted(2, 20, 40))), of(as(kindRead, granted(1, 10, 30)), as(kindRead, granted(2, 20, 40))), "while"},
		{"a writer behind readers is in with the first of them", of(as(kindRead, granted(1, 10, 30)), as(kindRead, granted(2, 11, 15)), as(kindWrite, granted(3, 20, 40))), of(as(kindRead, granted(1, 10, 19)), as(kindRead, granted(2, 11, 15)), as(kindWrite, granted(3, 20, 40))), "while"},
		{"a writer holds on when readers are in", of(as(kindWrite, granted(1, 10, 35)), as(kindRead, granted(2, 50, 0)), as(kindRead, granted(3, 30, 40))), of(as(kindWrite, granted(1, 10, 25)), as(kindRead, granted(2, 50, 0)), as(kindRead, granted(3, 30, 40))), "while"},
		{"two readers have one token", of(as(kindRead, granted(1, 10, 30)), as(kindRead, granted(1, 20, 40))), of(as(kindRead, granted(1, 10, 30)), as(kindRead, granted(2, 20, 40))), "the same token"},
		{"a latch and a leader lead", of(as(kindLatch, granted(1, 10, 30)), as(kindLeader, granted(2, 20, 40))), of(as(kindLatch, granted(1, 10, 19)), as(kindLeader, granted(2, 20, 40))), "while"},
		{"a mutex holds one of a multi's", of(granted(1, 10, 30), as(kindMulti, granted(2, 20, 40))), of(granted(1, 10, 19), as(kindMulti, granted(2, 20, 40))), "while"},
		{"two permits have one token", of(some(1, granted(1, 10, 30)), some(1, granted(1, 20, 40))), of(some(1, granted(1, 10, 30)), some(1, granted(2, 20, 40))), "the same token"},
		{"a mutex gives its second turn the token of its first", of(as(kindKept, local(1, 0, 10, 15)), as(kindKept, local(1, 0, 20, 25))), of(as(kindKept, local(1, 0, 10, 15)), as(kindKept, local(1, 1, 20, 25))), "the same token"},
		{"an older token is used later", of(granted(2, 10, 15), granted(1, 20, 25)), of(granted(2, 30, 35), granted(1, 20, 25)), "while"},
	})
	// Somebody deleted the znode of the first holder, which does not know it yet.
	both := []grant{granted(1, 10, 30), granted(2, 20, 40)}
	breaks := func(b ...breakage) past { return past{Grants: both, Breaks: b} }
	hold(t, findDoubleGrants, []badHistory{
		{"another hold was broken", breaks(breakage{"/l", 2, 15}), breaks(breakage{"/l", 1, 15}), "while"},
		{"a hold of another lock was broken", breaks(breakage{"/k", 1, 15}), breaks(breakage{"/l", 1, 20}), "while"},
		{"it was broken later", breaks(breakage{"/l", 1, 21}), breaks(breakage{"/k", 1, 15}, breakage{"/l", 1, 15}), "while"},
	})
	// A holder that was stopped between the grant and its look at the clock learns at its first
	// question that the hold is over.
	if found := findDoubleGrants(&past{Grants: []grant{granted(1, 50, 0), granted(2, 20, 40)}}); len(found) > 0 {
		t.Errorf("a hold that nobody was told of: %q", found)
	}
}

// with returns a grant with guarded writes.
func with(g grant, writes ...guarded) grant {
	g.Guarded = writes
	return g
}

// local returns a grant without a commit of its own.
func local(token embed.Zxid, n uint64, from, until int) grant {
	g := granted(token, from, until)
	g.Token.Local = n
	return g
}

func TestFindSmallTokens(t *testing.T) {
	of := func(g ...grant) past { return past{Grants: g} }
	since := func(asked int, g grant) grant {
		g.Asked = time.Duration(asked)
		return g
	}
	hold(t, findSmallTokens, []badHistory{
		{"a mutex counts backwards", of(as(kindKept, local(1, 2, 10, 0)), as(kindKept, local(1, 1, 20, 0))), of(as(kindKept, local(1, 1, 10, 0)), as(kindKept, local(1, 2, 20, 0))), " existed"},
		{"permits that come later have a smaller token", of(some(1, granted(2, 10, 0)), some(1, granted(1, 20, 0))), of(some(1, granted(2, 10, 0)), some(1, since(9, granted(1, 20, 0)))), " existed"},
		{"a writer who comes after a reader has a smaller token", of(as(kindRead, granted(2, 10, 0)), as(kindWrite, granted(1, 20, 0))), of(as(kindRead, granted(2, 10, 0)), as(kindRead, granted(1, 20, 0))), " existed"},
		{"a reader who comes after a writer has a smaller token", of(as(kindWrite, granted(3, 10, 0)), as(kindRead, granted(2, 20, 0)), as(kindRead, granted(4, 30, 0))), of(as(kindWrite, granted(1, 10, 0)), as(kindRead, granted(2, 20, 0)), as(kindRead, granted(4, 30, 0))), " existed"},
		{"a broken mutex counts on, but was granted before", past{Grants: []grant{granted(2, 10, 0), granted(1, 20, 0)}, Breaks: []breakage{{"/l", 1, 21}}}, past{Grants: []grant{granted(2, 10, 0), granted(1, 20, 0)}, Breaks: []breakage{{"/l", 1, 20}}}, " existed"},
		{"a transferred leadership has a smaller token", of(as(kindLatch, granted(2, 10, 0)), as(kindLeader, granted(1, 20, 0))), of(as(kindLatch, granted(1, 10, 0)), as(kindLeader, granted(2, 20, 0))), " existed"},
	})
}

func TestFindTooManyPermits(t *testing.T) {
	of := func(g ...grant) past { return past{Grants: g} }
	w := func(z embed.Zxid) guarded { return guarded{Outcome: applied, Mzxid: z} }
	hold(t, findTooManyPermits, []badHistory{
		{"two and two", of(some(2, granted(1, 10, 30)), some(2, granted(2, 20, 40))), of(some(2, granted(1, 10, 30)), some(1, granted(2, 20, 40))), "4 permits"},
		{"four of one", of(some(1, granted(1, 10, 50)), some(1, granted(2, 20, 50)), some(1, granted(3, 30, 50)), some(1, granted(4, 40, 50))), of(some(1, granted(1, 10, 39)), some(1, granted(2, 20, 50)), some(1, granted(3, 30, 50)), some(1, granted(4, 40, 50))), "4 permits"},
		{"the first of three lives longest", of(some(2, granted(1, 10, 50)), some(1, granted(2, 15, 18)), some(2, granted(3, 40, 45))), of(some(2, granted(1, 10, 39)), some(1, granted(2, 15, 18)), some(2, granted(3, 40, 45))), "4 permits"},
		{"a guarded write passes when others have all", of(some(2, granted(1, 10, 19, w(7))), some(2, granted(6, 20, 40, w(8)))), of(some(2, granted(1, 10, 19, w(5))), some(2, granted(6, 20, 40, w(8)))), "at zxid 6"},
	})
	if found := findTooManyPermits(&past{Grants: []grant{some(2, granted(1, 10, 0)), some(2, granted(2, 20, 40)), granted(3, 20, 40)}}); len(found) > 0 {
		t.Errorf("permits that nobody was told of, and a mutex: %q", found)
	}
}

func TestFindTooManyPermits_Resized(t *testing.T) {
	resize := func(from, to int, n string, o outcome) op {
		r := op{Call: callResize, Path: "/l", Data: n, Outcome: o, Begin: time.Duration(from), End: time.Duration(to)}
		if o == unknown {
			r.End = never
		}
		return r
	}
	// the second was requested at 49
	both := []grant{some(1, granted(1, 10, 90)), some(1, granted(2, 50, 90))}
	of := func(ops ...op) past { return past{Grants: both, Ops: ops} }
	hold(t, findTooManyPermits, []badHistory{
		{"the limit was one before", of(resize(20, 48, "1", applied)), of(resize(20, 49, "1", applied), resize(49, 60, "2", applied)), "there are 1"},
		{"a resize that was refused", of(resize(20, 30, "1", applied), resize(31, 40, "3", refused)), of(resize(20, 30, "1", applied), resize(31, 40, "3", applied)), "there are 1"},
		{"one that may have come earlier", of(resize(15, 16, "2", applied), resize(20, 30, "1", applied)), of(resize(15, 16, "2", unknown), resize(20, 30, "1", applied)), "there are 1"},
		{"two at the same time", of(resize(20, 30, "2", applied), resize(31, 40, "1", applied)), of(resize(20, 30, "2", applied), resize(29, 40, "1", applied)), "there are 1"},
		{"one that takes the word back", of(resize(20, 30, "1", applied)), of(resize(20, 30, "1", applied), resize(31, 40, "0", applied)), "there are 1"},
	})
}

func TestFindDeaf(t *testing.T) {
	of := func(o op, g grant) past {
		g.Path, o.Path, o.Call, o.Outcome = "/area0"+askedPath, "/area0"+askedPath, callRevoke, cmp.Or(o.Outcome, applied)
		return past{Ops: []op{o}, Grants: []grant{g}}
	}
	long := int(deafMax)
	hold(t, findDeaf, []badHistory{
		{"who was asked holds on", of(op{Begin: 11, End: 12}, granted(1, 10, long+13)), of(op{Begin: 11, End: 12}, granted(1, 10, long+12)), "asked"},
		{"who held before", of(op{Begin: 11, End: 12}, granted(1, 10, long+13)), of(op{Begin: 10, End: 12}, granted(1, 10, long+13)), "asked"},
		{"who was asked for certain", of(op{Begin: 11, End: 12}, granted(1, 10, long+13)), of(op{Begin: 11, End: 12, Outcome: unknown}, granted(1, 10, long+13)), "asked"},
	})
}

func TestFindWithdrawnLeaders(t *testing.T) {
	of := func(at int, g grant) past {
		g.Withdrawn = time.Duration(at)
		return past{Grants: []grant{as(kindLeader, g)}}
	}
	hold(t, findWithdrawnLeaders, []badHistory{
		{"it leads on", of(20, granted(1, 10, 21)), of(20, granted(1, 10, 20)), "after its withdrawal at"},
		{"its Withdraw had returned", of(20, granted(1, 10, 21)), of(0, granted(1, 10, 21)), "after its withdrawal at"},
	})
}

func TestFindShortDelays(t *testing.T) {
	of := func(g ...grant) past { return past{Grants: g} }
	lost := func(why error, g grant) grant {
		g.Delay, g.Lost = 20, why.Error()
		return g
	}
	died := lost(errDied, granted(1, 10, 20))
	died.Lost, died.Died = "", true
	hold(t, findShortDelays, []badHistory{
		{"the next is granted too early", of(lost(embed.ErrSuspended, granted(1, 10, 20)), granted(2, 39, 50)), of(lost(embed.ErrSuspended, granted(1, 10, 20)), granted(2, 40, 50)), "granted early"},
		{"whose session expired", of(lost(embed.ErrSessionExpired, granted(1, 10, 20)), granted(2, 39, 50)), of(lost(embed.ErrSessionClosed, granted(1, 10, 20)), granted(2, 39, 50)), "granted early"},
		{"whose node failed", of(lost(embed.ErrFailed, granted(1, 10, 20)), granted(2, 39, 50)), of(lost(embed.ErrClosed, granted(1, 10, 20)), granted(2, 39, 50)), "granted early"},
		{"who was killed", of(died, granted(2, 39, 50)), of(died, granted(2, 40, 50)), "granted early"},
		{"a reader who was lost, and a writer", of(as(kindRead, lost(embed.ErrSuspended, granted(1, 10, 20))), as(kindWrite, granted(3, 39, 50))), of(as(kindRead, lost(embed.ErrSuspended, granted(1, 10, 20))), as(kindRead, granted(3, 39, 50))), "granted early"},
	})
	by := func(identity string, g grant) grant {
		g.Identity = identity
		return g
	}
	hold(t, findShortDelays, []badHistory{
		{"somebody else comes back", of(by("x", lost(embed.ErrSuspended, granted(1, 10, 20))), by("y", granted(2, 25, 30))), of(by("x", lost(embed.ErrSuspended, granted(1, 10, 20))), by("x", granted(2, 25, 30))), "granted early"},
		{"nobody is who comes back", of(lost(embed.ErrSuspended, granted(1, 10, 20)), granted(2, 25, 30)), of(by("x", lost(embed.ErrSuspended, granted(1, 10, 20))), by("x", granted(2, 25, 30))), "granted early"},
		{"the next comes before who is back", of(by("x", lost(embed.ErrSuspended, granted(1, 10, 20))), by("x", granted(3, 30, 35)), granted(2, 25, 28)), of(by("x", lost(embed.ErrSuspended, granted(1, 10, 20))), by("x", granted(2, 25, 28)), granted(3, 30, 35)), "granted early"},
	})
	hold(t, findTooManyPermits, []badHistory{
		{"lost permits", of(lost(embed.ErrSuspended, some(2, granted(1, 10, 20))), some(2, granted(2, 39, 50))), of(lost(embed.ErrSuspended, some(2, granted(1, 10, 20))), some(2, granted(2, 41, 50))), "4 permits"},
	})
}

func TestFindStaleWrites(t *testing.T) {
	of := func(g ...grant) past { return past{Grants: g} }
	w := func(z embed.Zxid, o outcome, ended bool) guarded { return guarded{Outcome: o, Mzxid: z, Ended: ended} }
	hold(t, findStaleWrites, []badHistory{
		{"a write after the end passes", of(granted(1, 10, 20, w(5, applied, true))), of(granted(1, 10, 20, w(0, refused, true))), "had ended"},
		{"a reader's write passes after one of the next writer", of(as(kindRead, granted(1, 10, 20, w(7, applied, false))), as(kindWrite, granted(2, 21, 30, w(6, applied, false)))), of(as(kindRead, granted(1, 10, 20, w(7, applied, false))), as(kindRead, granted(2, 21, 30, w(6, applied, false)))), "succeeded at zxid 7"},
		{"a writer's write passes after one of the next reader and one of an earlier", of(as(kindWrite, granted(2, 10, 20, w(8, applied, false))), as(kindRead, granted(3, 21, 30, w(6, applied, false))), as(kindRead, granted(1, 5, 6, w(7, applied, false)))), of(as(kindWrite, granted(2, 10, 20, w(5, applied, false))), as(kindRead, granted(3, 21, 30, w(6, applied, false))), as(kindRead, granted(4, 5, 6, w(7, applied, false)))), "succeeded at zxid 8"},
		{"a write of a mutex's first turn passes after one of its second", of(as(kindKept, with(local(1, 2, 21, 30), w(6, applied, false))), as(kindKept, with(local(1, 1, 10, 20), w(7, applied, false)))), of(as(kindKept, with(local(1, 2, 21, 30), w(8, applied, false))), as(kindKept, with(local(1, 1, 10, 20), w(7, applied, false)))), "succeeded at zxid 7"},
		{"a write of permits that had ended passes", of(some(1, granted(1, 10, 20, w(5, applied, true)))), of(some(1, granted(1, 10, 20, w(7, applied, false))), some(1, granted(2, 10, 20, w(6, applied, false)))), "had ended"},
		{"a write passes after one of the next holder", of(granted(1, 10, 20, w(7, applied, false)), granted(2, 21, 30, w(6, applied, false))), of(granted(1, 10, 20, w(5, applied, false)), granted(2, 21, 30, w(6, applied, false))), "succeeded at zxid 7"},
	})
}

func TestFindBlindObservers(t *testing.T) {
	of := func(s ...sighting) past { return past{Observers: []observation{{Path: "/e", Seen: s}}} }
	at := func(token embed.Zxid, value string) sighting { return sighting{lock.Token{Zxid: token}, value} }
	hold(t, findBlindObservers, []badHistory{
		{"an older leader comes back", of(at(2, "b#1.0"), at(1, "a#1.0")), of(at(1, "a#1.0"), at(2, "b#1.0")), "after"},
		{"a value goes back", of(at(1, "a#1.5"), at(1, "a#1.0")), of(at(1, "a#1.0"), at(1, "a#1.5")), "after"},
		{"one turn has two leaders", of(at(1, "a#1.0"), at(1, "b#1.5")), of(at(1, "a#1.0"), at(2, "b#1.5")), "two leaders"},
	})
}
