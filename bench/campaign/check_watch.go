package campaign

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/vivarium-go/vivarium/embed"
)

// A changeLog holds all known changes of the registers, and of the znodes of storms. A change is
// known if its write was acknowledged or a watch delivered it.
type changeLog struct {
	byPath map[string]map[event]string // its source
	sorted []event                     // of all areas, by zxid; a reader looks at one area
}

func newChangeLog(p *past) *changeLog {
	l := &changeLog{byPath: make(map[string]map[event]string)}
	for i := range p.Ops {
		o := &p.Ops[i]
		if !watched(o.Path) || o.wrote() == 0 {
			continue
		}
		t := embed.NodeDataChanged
		if o.Call == callCreate {
			t = embed.NodeCreated
		}
		l.add(event{t, o.Path, o.wrote()}, fmt.Sprintf("which was acknowledged to %s", o.Session))
	}
	for _, t := range p.Tapes {
		for _, e := range t.Events {
			// A once-watch that a snapshot overtook reports that something changed. The change need
			// not have happened in that way.
			if t.Mode != embed.WatchOnce && e.Type != embed.NodeChildrenChanged {
				l.add(e, fmt.Sprintf("which a watch of %s on member %d delivered", t.Path, t.Member))
			}
		}
	}
	for _, of := range l.byPath {
		for e := range of {
			l.sorted = append(l.sorted, e)
		}
	}
	slices.SortFunc(l.sorted, byZxid)
	return l
}

// watched reports whether the history has all writes of a path. That is so for some paths, and for
// the paths above them.
func watched(path string) bool {
	at := inArea(path)
	return at == "" || strings.HasPrefix(at, registersPath) || strings.HasPrefix(at, stormPath)
}

func byZxid(a, b event) int {
	return cmp.Or(cmp.Compare(a.Zxid, b.Zxid), cmp.Compare(a.Path, b.Path), cmp.Compare(a.Type, b.Type))
}

func (l *changeLog) add(e event, who string) {
	if l.byPath[e.Path] == nil {
		l.byPath[e.Path] = make(map[event]string)
	}
	if l.byPath[e.Path][e] == "" {
		l.byPath[e.Path][e] = who
	}
}

// after returns the changes later than a zxid, in order.
func (l *changeLog) after(z embed.Zxid) []event {
	at, _ := slices.BinarySearchFunc(l.sorted, z, func(e event, z embed.Zxid) int {
		if e.Zxid <= z {
			return -1
		}
		return 1
	})
	return l.sorted[at:]
}

// findGaps checks that each watch delivered every matching change once and in order, from where it
// was armed to where it is known to be complete.
func findGaps(p *past) (found []string) {
	changes := newChangeLog(p)
	for i := range p.Tapes {
		t := &p.Tapes[i]
		found = append(found, t.disorder()...)
		if watched(t.Path) {
			found = append(found, t.missing(changes)...)
		}
		if inArea(t.Path) == stillPath && (len(t.Events) > 0 || strings.Contains(t.Why, embed.ErrWatchGap.Error())) {
			found = append(found, fmt.Sprintf("%v: nobody ever touched the znode, but the watch delivered %d events and ended: %q", t, len(t.Events), t.Why))
		}
	}
	return append(found, findInventions(p, changes)...)
}

// String describes a watch.
func (t *tape) String() string {
	return fmt.Sprintf("the watch of %s on member %d (mode %d, armed at %d)", t.Path, t.Member, t.Mode, t.Armed)
}

// disorder checks a stream by itself.
func (t *tape) disorder() (found []string) {
	last := t.Since
	seen := make(map[event]bool)
	for _, e := range t.Events {
		switch {
		case e.Zxid < last || e.Zxid == t.Since:
			found = append(found, fmt.Sprintf("%v delivered %v after zxid %d", t, e, last))
		case seen[e]:
			found = append(found, fmt.Sprintf("%v delivered %v twice", t, e))
		}
		seen[e] = true
		last = e.Zxid
	}
	if t.Mode == embed.WatchOnce && len(t.Events) > 1 {
		found = append(found, fmt.Sprintf("%v fired %d times", t, len(t.Events)))
	}
	return found
}

// from returns the zxid after which the watch must have delivered everything. It is where the watch
// was armed, as far as is known.
func (t *tape) from() embed.Zxid {
	if len(t.Events) > 0 {
		return min(t.Armed, t.Events[0].Zxid-1)
	}
	return t.Armed
}

// complete returns the newest zxid up to which the watch must have delivered everything.
func (t *tape) complete() embed.Zxid {
	last := t.from()
	if n := len(t.Events); n > 0 {
		last = t.Events[n-1].Zxid - 1 // there may be more events of that transaction
	}
	if t.Mode == embed.WatchOnce && len(t.Events) > 0 {
		return last
	}
	return max(last, t.Synced)
}

// matches reports whether a change of a znode concerns the watch.
func (t *tape) matches(path string) bool {
	return path == t.Path || t.Mode == embed.WatchRecursive && strings.HasPrefix(path, t.Path+"/")
}

// missing looks for changes that the stream should contain.
func (t *tape) missing(changes *changeLog) (found []string) {
	if t.Mode == embed.WatchOnce && len(t.Events) > 0 && !strings.HasPrefix(inArea(t.Path), stormPath) {
		return nil // if a snapshot overtakes it, it reports the last change, not the first
	}
	told := make(map[event]bool)
	for _, e := range t.Events {
		told[e] = true
	}
	for _, e := range changes.after(t.from()) {
		if e.Zxid > t.complete() {
			break
		}
		if t.matches(e.Path) && !told[e] {
			found = append(found, fmt.Sprintf("%v is complete up to %d, but did not deliver %v, %s", t, t.complete(), e, changes.byPath[e.Path][e]))
		}
	}
	return found
}

// findInventions checks that watches delivered no more sets than were made. Acknowledged sets are
// known, and each set of unknown outcome can have happened once.
func findInventions(p *past, changes *changeLog) (found []string) {
	maybe := make(map[string]int)
	sets := make(map[event]bool)
	for i := range p.Ops {
		o := &p.Ops[i]
		switch {
		case o.Call != callSet:
		case o.Outcome == unknown:
			maybe[o.Path]++
		case o.Outcome == applied:
			sets[event{embed.NodeDataChanged, o.Path, o.wrote()}] = true
		}
	}
	for path, of := range changes.byPath {
		if !watched(path) {
			continue
		}
		extra := 0
		for e := range of {
			if e.Type == embed.NodeDataChanged && !sets[e] {
				extra++
			}
		}
		if extra > maybe[path] {
			found = append(found, fmt.Sprintf("%s: watches delivered %d sets that were not acknowledged, but only %d have an unknown outcome", path, extra, maybe[path]))
		}
	}
	return found
}
