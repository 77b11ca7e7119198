//go:build unix

package main

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/lock"
)

// shares reports whether two holds of a path may be there at the same time.
func (g *grant) shares(o *grant) bool {
	return g.Kind == o.Kind && (g.Kind == kindRead || g.Kind == kindPermit)
}

// grantsByPath returns the grants of each path.
func (p *past) grantsByPath() map[string][]grant {
	byPath := make(map[string][]grant)
	for _, g := range p.Grants {
		byPath[g.Path] = append(byPath[g.Path], g)
	}
	return byPath
}

// findDoubleGrants checks that once somebody had a lock or led, no earlier holder was told that it still did, unless the two share it, and
// that every grant has a token of its own. When Lock returned says nothing of the order: its caller may have been stopped since.
func findDoubleGrants(p *past) (found []string) {
	for path, all := range p.grantsByPath() {
		slices.SortFunc(all, func(a, b grant) int { return a.Token.Compare(b.Token) })
		longest := make(map[holdKind]grant) // of those with smaller tokens, who was told longest
		for i, g := range all {
			if i > 0 && all[i-1].Token == g.Token {
				found = append(found, fmt.Sprintf("%s: %v and %v have one token", path, all[i-1], g))
			}
			for _, l := range longest {
				if !g.shares(&l) && l.Until >= g.From {
					found = append(found, fmt.Sprintf("%s: %v was told that it holds while %v had it", path, l, g))
				}
			}
			if l, ok := longest[g.Kind]; !ok || g.Until > l.Until {
				longest[g.Kind] = g
			}
		}
	}
	return found
}

// String says whose grant it was.
func (g grant) String() string {
	return fmt.Sprintf("the %s on member %d, run %d, with token %v (%.6f to %.6f)", g.Kind, g.Member, g.Run, g.Token, g.From.Seconds(), g.Until.Seconds())
}

// findSmallTokens checks that what was asked for when somebody had been granted a path already is granted with a greater token. Those of
// readers mean nothing to one another.
func findSmallTokens(p *past) (found []string) {
	for path, byAsked := range p.grantsByPath() {
		byFrom := slices.Clone(byAsked)
		slices.SortFunc(byFrom, func(a, b grant) int { return cmp.Compare(a.From, b.From) })
		slices.SortFunc(byAsked, func(a, b grant) int { return cmp.Compare(a.Asked, b.Asked) })
		greatest := make(map[holdKind]grant) // of those that were there when b was asked for
		n := 0
		for _, b := range byAsked {
			for ; n < len(byFrom) && byFrom[n].From < b.Asked; n++ {
				a := byFrom[n]
				if g, ok := greatest[a.Kind]; !ok || a.Token.Compare(g.Token) > 0 {
					greatest[a.Kind] = a
				}
			}
			for _, a := range greatest {
				if (a.Kind != kindRead || b.Kind != kindRead) && b.Token.Compare(a.Token) <= 0 {
					found = append(found, fmt.Sprintf("%s: %v was asked for at %.6f, when %v was there", path, b, b.Asked.Seconds(), a))
				}
			}
		}
	}
	return found
}

// taken is until when a path stays taken that was lost: its delay is counted from later than the last question that was answered "still held".
// When somebody's clock jumps that may be a contender's who counts.
func (p *past) taken(g *grant) time.Duration {
	lost := g.Died
	for _, why := range []error{embed.ErrSuspended, embed.ErrSessionExpired, embed.ErrFailed} {
		lost = lost || g.Lost == why.Error()
	}
	if !lost || g.Delay == 0 || p.jumped(g.Until-jumpRoom, g.Until+g.Delay) {
		return g.Until
	}
	return g.Until + g.Delay
}

// jumpRoom is how late a process may learn that its clock jumps.
const jumpRoom = 20 * time.Second

// findShortDelays checks that nobody is granted what was lost before its delay is over, but who is of the same identity, and who comes after
// that one.
func findShortDelays(p *past) (found []string) {
	for path, all := range p.grantsByPath() {
		for i := range all {
			a := &all[i]
			until := p.taken(a)
			if until == a.Until {
				continue
			}
			if back := a.backIn(all); back != nil {
				until = min(until, back.From)
			}
			for _, b := range all {
				if !a.shares(&b) && b.Token.Compare(a.Token) > 0 && b.From < until && !a.isBack(&b) {
					found = append(found, fmt.Sprintf("%s: %v was lost, to stay taken for %v, and then it was that of %v", path, *a, a.Delay, b))
				}
			}
		}
	}
	return found
}

// isBack reports whether a later grant is that of the identity that lost an earlier one.
func (g *grant) isBack(o *grant) bool {
	return g.Identity != "" && g.Identity == o.Identity && o.Token.Compare(g.Token) > 0
}

// backIn returns the first grant that isBack.
func (g *grant) backIn(all []grant) (first *grant) {
	for i := range all {
		if o := &all[i]; g.isBack(o) && (first == nil || o.From < first.From) {
			first = o
		}
	}
	return first
}

// deafMax is how long somebody may hold on whom others have asked, who gives up when he hears of it: who cannot hear for so long has lost his
// session.
const deafMax = sessionTimeoutLong + 5*time.Second

// findDeaf checks that who holds when others ask for it hears of it.
func findDeaf(p *past) (found []string) {
	byPath := p.grantsByPath()
	for i := range p.Ops {
		o := &p.Ops[i]
		if o.Call != callRevoke || o.Outcome != applied || inArea(o.Path) != askedPath {
			continue
		}
		for _, g := range byPath[o.Path] {
			if g.From < o.Begin && g.Until > o.End+deafMax {
				found = append(found, fmt.Sprintf("%s: somebody asked %v to give it up from %.6f to %.6f", o.Path, g, o.Begin.Seconds(), o.End.Seconds()))
			}
		}
	}
	return found
}

// findWithdrawnLeaders checks that nobody is told that it leads whose candidate was withdrawn.
func findWithdrawnLeaders(p *past) (found []string) {
	for _, g := range p.Grants {
		if g.Withdrawn > 0 && g.Until > g.Withdrawn {
			found = append(found, fmt.Sprintf("%s: %v was withdrawn at %.6f", g.Path, g, g.Withdrawn.Seconds()))
		}
	}
	return found
}

// resizes are what may have set the limits of semaphores, by path.
func (p *past) resizes() map[string][]op {
	byPath := make(map[string][]op)
	for _, o := range p.Ops {
		if o.Call == callResize && (o.Outcome == applied || o.Outcome == unknown) {
			byPath[o.Path] = append(byPath[o.Path], o)
		}
	}
	return byPath
}

// permitsBetween returns the most permits that there may have been in a time: those of every resize that had begun, unless another came after it
// that was over before.
func permitsBetween(resizes []op, from, until time.Duration) (most int) {
	for _, o := range append([]op{{Outcome: applied, Data: "0"}}, resizes...) { // as it was
		after := func(r op) bool { return r.Outcome == applied && r.Begin > o.End && r.End < from }
		if o.Begin > until || o.Outcome == applied && slices.ContainsFunc(resizes, after) {
			continue
		}
		n, _ := strconv.Atoi(o.Data)
		if n == 0 {
			n = permitsLimit // on which all agree
		}
		most = max(most, n)
	}
	return most
}

// findTooManyPermits checks that never were more permits out than there are: by the times from when Acquire had returned to the last question
// that was answered "still held", and by the zxids from the grant to the last guarded write that passed.
func findTooManyPermits(p *past) (found []string) {
	resizes := p.resizes()
	for path, all := range p.grantsByPath() {
		all = slices.DeleteFunc(all, func(g grant) bool { return g.Kind != kindPermit })
		most := make(map[lock.Token]int) // when it was granted
		for _, g := range all {
			most[g.Token] = permitsBetween(resizes[path], g.Asked, g.From)
		}
		found = append(found, tooMany(path, "ns", all, most, func(g grant) (from, until int64) { return int64(g.From), int64(p.taken(&g)) })...)
		found = append(found, tooMany(path, "zxid", all, most, func(g grant) (from, until int64) {
			for _, w := range g.Guarded {
				if w.Outcome == applied {
					until = max(until, int64(w.Mzxid))
				}
			}
			return int64(g.Token.Zxid), until
		})...)
	}
	return found
}

// tooMany adds up the permits that are out at any time, of those that were out when the newest of them was granted.
func tooMany(path, unit string, all []grant, most map[lock.Token]int, during func(grant) (from, until int64)) (found []string) {
	slices.SortFunc(all, func(a, b grant) int {
		x, _ := during(a)
		y, _ := during(b)
		return cmp.Compare(x, y)
	})
	var out []grant
	for _, g := range all {
		from, until := during(g)
		if until < from {
			continue // it was never told
		}
		out = append(slices.DeleteFunc(out, func(o grant) bool {
			_, until := during(o)
			return until < from
		}), g)
		sum, limit := 0, 0
		for _, o := range out {
			sum += o.Permits
			if o.Token.Compare(g.Token) >= 0 { // of which one may have been granted later than g, and told earlier
				limit = max(limit, most[o.Token])
			}
		}
		if sum > limit {
			found = append(found, fmt.Sprintf("%s: %d permits are out at %s %d, of %d: %v", path, sum, unit, from, limit, out))
		}
	}
	return found
}

// findStaleWrites checks the writes that were guarded by holds: none of a hold that had ended, and none of an earlier holder
// after one of a later, unless the two share the lock.
func findStaleWrites(p *past) (found []string) {
	type write struct {
		grant
		guarded
	}
	byPath := make(map[string][]write)
	for _, g := range p.Grants {
		for _, w := range g.Guarded {
			switch {
			case w.Outcome != applied:
			case w.Ended:
				found = append(found, fmt.Sprintf("%s: the write %q of %v passed when the hold had ended", g.Path, w.Data, g))
			default:
				byPath[g.Path] = append(byPath[g.Path], write{g, w})
			}
		}
	}
	for path, all := range byPath {
		slices.SortFunc(all, func(a, b write) int { return cmp.Compare(a.Mzxid, b.Mzxid) })
		newest := make(map[holdKind]write) // with the greatest token so far
		for _, b := range all {
			for _, a := range newest {
				if !b.shares(&a.grant) && b.Token.Compare(a.Token) < 0 {
					found = append(found, fmt.Sprintf("%s: the write %q of %v passed at zxid %d, after %q of %v at %d", path, b.guarded.Data, b.grant, b.Mzxid, a.guarded.Data, a.grant, a.Mzxid))
				}
			}
			if a, ok := newest[b.Kind]; !ok || b.Token.Compare(a.Token) >= 0 {
				newest[b.Kind] = b
			}
		}
	}
	return found
}

// findBlindObservers checks what each observer of an election saw: leaders in the order of their tokens, each of them with
// values of its own in the order it published them, none of them twice in a row.
func findBlindObservers(p *past) (found []string) {
	for _, o := range p.Observers {
		for i := 1; i < len(o.Seen); i++ {
			a, b := o.Seen[i-1], o.Seen[i]
			whoA, nA := split(a.Value)
			whoB, nB := split(b.Value)
			switch c := b.Token.Compare(a.Token); {
			case c < 0:
				found = append(found, fmt.Sprintf("an observer of %s saw %v after %v", o.Path, b, a))
			case c == 0 && whoA != whoB:
				found = append(found, fmt.Sprintf("an observer of %s saw one token with two leaders: %v and %v", o.Path, a, b))
			case c == 0 && nB <= nA:
				found = append(found, fmt.Sprintf("an observer of %s saw the value %v after %v", o.Path, b, a))
			}
		}
	}
	return found
}

// split takes a published value apart: who published it, and as which of its values.
func split(value string) (who string, n int) {
	at := strings.LastIndexByte(value, '.')
	if at < 0 {
		return value, 0
	}
	_, _ = fmt.Sscan(value[at+1:], &n)
	return value[:at], n
}
