package campaign

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/vivarium-go/vivarium/embed"
)

// A Shelf is a Host that knows the size of each file of a member, by its name.
type Shelf interface {
	Files(id embed.MemberID) (map[string]int64, error)
}

// sizes are how large things are, each at the member that has most of it.
type sizes map[string]int64

// bounded are the sizes that do not depend on how long an ensemble has been used, and how much
// each may grow beyond twice of what it was. Faults leave more behind at one time than at another.
var bounded = sizes{
	"sessions": 100, "ephemerals": 100, "watches": 500, "connections": 100, "goroutines": 1000,
	"raft logs, files": 50, "raft logs, bytes": 8 << 20, "other raft files, files": 100, "other raft files, bytes": 16 << 20,
	"images, files": 100, "other files, files": 20, "other files, bytes": 1 << 20,
}

// figureNames are the names of sizes among the figures of mntr.
var figureNames = map[string]string{
	"zk_global_sessions": "sessions", "zk_ephemerals_count": "ephemerals", "zk_watch_count": "watches",
	"zk_num_alive_connections": "connections", "zk_znode_count": "znodes", "zk_approximate_data_size": "tree, bytes",
}

// weigh returns the sizes of an ensemble, as far as its members answer.
func (e *ensemble) weigh() sizes {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	all := sizes{"goroutines": int64(runtime.NumGoroutine()), "heap, bytes": int64(m.HeapAlloc)}
	ctx, cancel := limit(context.Background(), 10*tick)
	defer cancel()
	for _, id := range e.here() {
		one := make(sizes)
		figures, _ := e.figures(ctx, id)
		for key, name := range figureNames {
			one[name] = figures[key]
		}
		if shelf, ok := e.host.(Shelf); ok {
			files, _ := shelf.Files(id) // without what is being removed
			for name, bytes := range files {
				one[kindOfFile(name)+", files"]++
				one[kindOfFile(name)+", bytes"] += bytes
			}
		}
		for name, n := range one {
			all[name] = max(all[name], n)
		}
	}
	return all
}

// kindOfFile returns what a file of a member is for. The name begins with the member's directory.
func kindOfFile(name string) string {
	has := func(part string) bool { return slices.Contains(strings.Split(name, string(filepath.Separator)), part) }
	switch {
	case has("raft") && filepath.Ext(name) == ".log":
		return "raft logs"
	case has("raft"):
		return "other raft files"
	case has("image"):
		return "images"
	}
	return "other files"
}

// A weight is what an ensemble was at a time of its round.
type weight struct {
	round, size int
	at          time.Duration
	sizes       sizes
}

// outgrown describes what has more than doubled since before, which may be the greatest of several
// weights.
func outgrown(before, now sizes) (found []string) {
	for _, name := range slices.Sorted(maps.Keys(bounded)) {
		if was, is := before[name], now[name]; is > 2*was+bounded[name] {
			found = append(found, fmt.Sprintf("%s: %d, and %d before", name, is, was))
		}
	}
	return found
}

// most returns the greatest of all sizes.
func most(weights []weight) sizes {
	all := make(sizes)
	for _, w := range weights {
		for name, n := range w.sizes {
			all[name] = max(all[name], n)
		}
	}
	return all
}

// judgeGrowth reports a violation if an ensemble is larger at its end than in the first half of its
// round, or than the first ensemble of as many members was at its end.
func (c *campaign) judgeGrowth(during []weight, end weight) {
	if half := during[:len(during)/2]; len(half) > 1 {
		for _, what := range outgrown(most(half), end.sizes) {
			c.report.violate("growth", "from the first half of round %d to its end: %s", end.round, what)
		}
	}
	if i := slices.IndexFunc(c.ends, func(w weight) bool { return w.size == end.size }); i >= 0 {
		for _, what := range outgrown(c.ends[i].sizes, end.sizes) {
			c.report.violate("growth", "from the end of round %d to that of round %d: %s", c.ends[i].round, end.round, what)
		}
	}
	c.ends = append(c.ends, end)
}

// showGrowth prints the sizes at the ends of the first, the middle and the last round.
func (c *campaign) showGrowth() {
	if len(c.ends) == 0 {
		return
	}
	three := []weight{c.ends[0], c.ends[len(c.ends)/2], c.ends[len(c.ends)-1]}
	fmt.Fprintf(c.out, "\nthe largest member at the end of rounds %d, %d and %d:\n", three[0].round, three[1].round, three[2].round)
	for _, name := range slices.Sorted(maps.Keys(three[0].sizes)) {
		fmt.Fprintf(c.out, "  %12d %12d %12d  %s\n", three[0].sizes[name], three[1].sizes[name], three[2].sizes[name], name)
	}
}

// String lists all sizes that are not zero.
func (s sizes) String() string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(s)) {
		if s[name] != 0 {
			all = append(all, fmt.Sprintf("%s %d", name, s[name]))
		}
	}
	return strings.Join(all, "; ")
}
