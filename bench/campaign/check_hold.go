package campaign

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

// shares reports whether two holds of a path may exist at the same time.
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

// broken returns since when a grant may be nobody's, because somebody deleted its znode by hand. It
// returns never if nobody did. The node learns it when it applies the deletion, and others may do so
// sooner. So what the holder hears since then is outside of the promise. What it writes is not.
func (p *past) broken(g *grant) time.Duration {
	since := never
	for _, b := range p.Breaks {
		// A place that was taken over has the zxid of its znode in Local.
		if b.Path == g.Path && (b.Czxid == g.Token.Zxid || g.Kind != kindKept && uint64(b.Czxid) == g.Token.Local) {
			since = min(since, b.At)
		}
	}
	return since
}

// findDoubleGrants checks that holds exclude each other. Once a holder has a lock or leads, no
// earlier holder may hear that it still does, unless the two share the lock. Every grant has a
// token of its own. The time at which Lock returned says nothing about the order, because its
// caller may have been stopped since. What a holder heard since it was broken does not count. Nor
// does a reserved name count while a clock jumps, which may be the one that ends it.
func findDoubleGrants(p *past) (found []string) {
	for path, all := range p.grantsByPath() {
		slices.SortFunc(all, func(a, b grant) int { return a.Token.Compare(b.Token) })
		// of the grants with smaller tokens, the one that was told longest
		longest := make(map[holdKind]grant)
		for i, g := range all {
			if i > 0 && all[i-1].Token == g.Token {
				found = append(found, fmt.Sprintf("%s: %v and %v have the same token", path, all[i-1], g))
			}
			for _, l := range longest {
				if !g.shares(&l) && l.Until >= g.From && !(l.Kind == kindName && p.jumped(l.Asked, g.From)) {
					found = append(found, fmt.Sprintf("%s: %v heard that it holds while %v held it", path, l, g))
				}
			}
			g.Until = min(g.Until, p.broken(&g)-1)
			if l, ok := longest[g.Kind]; !ok || g.Until > l.Until {
				longest[g.Kind] = g
			}
		}
	}
	return found
}

// String describes the holder of a grant.
func (g grant) String() string {
	return fmt.Sprintf("the %s on member %d, run %d, with token %v (%.6f to %.6f)", g.Kind, g.Member, g.Run, g.Token, g.From.Seconds(), g.Until.Seconds())
}

// findSmallTokens checks that tokens grow: a hold that was requested after another was granted has
// a greater token. Read locks need no order among each other, and broken holds with nobody.
func findSmallTokens(p *past) (found []string) {
	for path, byAsked := range p.grantsByPath() {
		byFrom := slices.Clone(byAsked)
		slices.SortFunc(byFrom, func(a, b grant) int { return cmp.Compare(a.From, b.From) })
		slices.SortFunc(byAsked, func(a, b grant) int { return cmp.Compare(a.Asked, b.Asked) })
		greatest := make(map[holdKind]grant) // of the grants that existed when b was requested
		n := 0
		for _, b := range byAsked {
			for ; n < len(byFrom) && byFrom[n].From < b.Asked; n++ {
				a := byFrom[n]
				if g, ok := greatest[a.Kind]; !ok || a.Token.Compare(g.Token) > 0 {
					greatest[a.Kind] = a
				}
			}
			for _, a := range greatest {
				if (a.Kind != kindRead || b.Kind != kindRead) && b.Token.Compare(a.Token) <= 0 && b.From < p.broken(&b) {
					found = append(found, fmt.Sprintf("%s: %v was requested at %.6f, when %v existed", path, b, b.Asked.Seconds(), a))
				}
			}
		}
	}
	return found
}

// taken returns until when a lost path stays taken. Its delay counts from later than the last
// question that was answered "still held". When a clock jumps, that clock may be the contender's,
// which counts the delay.
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

// findShortDelays checks that a lost path is granted to nobody before its delay is over. Excepted
// are the holder with the same identity, and the holders after it.
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
					found = append(found, fmt.Sprintf("%s: %v was lost with a delay of %v, but was granted early to %v", path, *a, a.Delay, b))
				}
			}
		}
	}
	return found
}

// isBack reports whether o, a later grant, belongs to the identity that lost g.
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

// deafMax limits how long a holder keeps what others have asked for, if it gives up as soon as it
// hears. A holder that cannot hear for so long has lost its session.
const deafMax = sessionTimeoutLong + 5*time.Second

// findDeaf checks that holders hear when others ask for their locks.
func findDeaf(p *past) (found []string) {
	byPath := p.grantsByPath()
	for i := range p.Ops {
		o := &p.Ops[i]
		if o.Call != callRevoke || o.Outcome != applied || inArea(o.Path) != askedPath {
			continue
		}
		for _, g := range byPath[o.Path] {
			if g.From < o.Begin && g.Until > o.End+deafMax {
				found = append(found, fmt.Sprintf("%s: %v kept it, although it was asked for from %.6f to %.6f", o.Path, g, o.Begin.Seconds(), o.End.Seconds()))
			}
		}
	}
	return found
}

// findWithdrawnLeaders checks that no withdrawn candidate hears that it leads.
func findWithdrawnLeaders(p *past) (found []string) {
	for _, g := range p.Grants {
		if g.Withdrawn > 0 && g.Until > g.Withdrawn {
			found = append(found, fmt.Sprintf("%s: %v heard that it leads after its withdrawal at %.6f", g.Path, g, g.Withdrawn.Seconds()))
		}
	}
	return found
}

// resizes returns the calls that may have set the limits of semaphores, by path.
func (p *past) resizes() map[string][]op {
	byPath := make(map[string][]op)
	for _, o := range p.Ops {
		if o.Call == callResize && (o.Outcome == applied || o.Outcome == unknown) {
			byPath[o.Path] = append(byPath[o.Path], o)
		}
	}
	return byPath
}

// permitsBetween returns the most permits that may have existed during a time. It considers the
// limit of every resize that had begun, unless a later resize was over before that time.
func permitsBetween(resizes []op, from, until time.Duration) (most int) {
	// the limit at first
	for _, o := range append([]op{{Outcome: applied, Data: "0"}}, resizes...) {
		after := func(r op) bool { return r.Outcome == applied && r.Begin > o.End && r.End < from }
		if o.Begin > until || o.Outcome == applied && slices.ContainsFunc(resizes, after) {
			continue
		}
		n, _ := strconv.Atoi(o.Data)
		if n == 0 {
			n = permitsLimit // the limit on which all agree
		}
		most = max(most, n)
	}
	return most
}

// findTooManyPermits checks that holders never have more permits than exist. It checks this twice.
// By time, a permit is held from Acquire's return to the last question that was answered "still
// held". By zxid, it is held from the grant to the last guarded write that succeeded.
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

// tooMany adds up the permits that are held at any moment. For each grant it counts the permits
// that were held when the newest of them was granted.
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
			// one of these may have been granted later than g, and told earlier
			if o.Token.Compare(g.Token) >= 0 {
				limit = max(limit, most[o.Token])
			}
		}
		if sum > limit {
			found = append(found, fmt.Sprintf("%s: %d permits are held at %s %d, but there are %d: %v", path, sum, unit, from, limit, out))
		}
	}
	return found
}

// findStaleWrites checks the writes that holds guarded. No write of an ended hold succeeds. No
// write of an earlier holder succeeds after a write of a later holder, unless the two share the
// lock.
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
				found = append(found, fmt.Sprintf("%s: the write %q of %v succeeded after the hold had ended", g.Path, w.Data, g))
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
					found = append(found, fmt.Sprintf("%s: the write %q of %v succeeded at zxid %d, after %q of %v at %d", path, b.guarded.Data, b.grant, b.Mzxid, a.guarded.Data, a.grant, a.Mzxid))
				}
			}
			if a, ok := newest[b.Kind]; !ok || b.Token.Compare(a.Token) >= 0 {
				newest[b.Kind] = b
			}
		}
	}
	return found
}

// findBlindObservers checks what each observer of an election saw. The leaders come in the order of
// their tokens. The values of a leader are its own and come in the order of publication. No value
// comes twice in a row.
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
				found = append(found, fmt.Sprintf("an observer of %s saw two leaders with one token: %v and %v", o.Path, a, b))
			case c == 0 && nB <= nA:
				found = append(found, fmt.Sprintf("an observer of %s saw the value %v after %v", o.Path, b, a))
			}
		}
	}
	return found
}

// split takes a published value apart into its publisher and the value's number.
func split(value string) (who string, n int) {
	at := strings.LastIndexByte(value, '.')
	if at < 0 {
		return value, 0
	}
	_, _ = fmt.Sscan(value[at+1:], &n)
	return value[:at], n
}
