package tree

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// A quota on the subtree of X is the znode /zookeeper/quota/X/zookeeper_limits for as long as it exists. What the subtree
// uses is written in its sibling zookeeper_stats, and nowhere else: there is nothing to rebuild when a tree is loaded, and
// replicas cannot differ in it. Both are znodes like any other; who may write them may also make up numbers.
const (
	limitsName = "/zookeeper_limits"
	statsName  = "/zookeeper_stats"
)

// quotaOf returns the subtree that a znode of one of the names above is about. There is no quota on the root.
func quotaOf(path, name string) (subtree string, ok bool) {
	rest, ok := strings.CutPrefix(path, quotaPath)
	if !ok {
		return "", false
	}
	subtree, ok = strings.CutSuffix(rest, name)
	return subtree, ok && strings.HasPrefix(subtree, "/")
}

// The keys of a text of limits or of usage.
const (
	countKey     = "count"
	bytesKey     = "bytes"
	countHardKey = "countHardLimit"
	bytesHardKey = "byteHardLimit"
)

// A track is what such a text says. What it does not say is -1, as a limit: none.
type track map[string]int64

// trackMax bounds the bytes of a text that is read: every write below a quota reads two of them.
const trackMax = 1 << 10

// parseTrack reads "count=1,bytes=2=;byteHardLimit=3". It is false for what cannot be read, or is too long to be.
func parseTrack(text []byte) (track, bool) {
	t := track{}
	if len(text) > trackMax {
		return nil, false
	}
	for pair := range bytes.FieldsFuncSeq(text, func(r rune) bool { return r == ',' || r == ';' }) {
		key, rest, _ := strings.Cut(string(pair), "=")
		value, _, _ := strings.Cut(rest, "=")
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return nil, false
		}
		t[key] = n
	}
	return t, true
}

func (t track) get(key string) int64 {
	if n, ok := t[key]; ok {
		return n
	}
	return -1
}

// text writes count and bytes first, for readers that know no other key; the odd "=" is for them too.
func (t track) text() []byte {
	b := fmt.Appendf(nil, "count=%d,bytes=%d", t.get(countKey), t.get(bytesKey))
	others := maps.Clone(t)
	delete(others, countKey)
	delete(others, bytesKey)
	if len(others) > 0 {
		b = append(b, '=')
	}
	for _, key := range slices.Sorted(maps.Keys(others)) {
		b = fmt.Appendf(b, ";%s=%d", key, others[key])
	}
	return b
}

// exceeds reports whether a use is over the limit of the key, if there is one.
func (t track) exceeds(key string, use int64) bool {
	limit := t.get(key)
	return limit > -1 && use > limit
}

// A phase says which version of a znode counts: (*entry).before or (*entry).current.
type phase func(*entry) *version

// quotaFor returns the deepest subtree with a quota that a path lies in, and its limits; or nil.
func (t *Tree) quotaFor(path string, at phase) (subtree string, limits *version) {
	for subtree = path; subtree != ""; subtree = subtree[:strings.LastIndexByte(subtree, '/')] {
		if e := t.quotas[subtree]; e != nil && at(e) != nil {
			return subtree, at(e)
		}
	}
	return "", nil
}

// usage returns what the subtree is said to use; false if nothing is said or it cannot be read.
func (t *Tree) usage(subtree string, at phase) (stats *entry, used track, ok bool) {
	stats = t.index.get(quotaPath + subtree + statsName)
	if stats == nil || at(stats) == nil {
		return nil, nil, false
	}
	used, ok = parseTrack(at(stats).bytes())
	return stats, used, ok
}

// checkQuota returns ErrQuotaExceeded if so many znodes and bytes more were over a hard limit. As in ZooKeeper, limits and
// usage are those before the transaction, whatever its operations did before; and bytes are looked at if they change, also
// if they become fewer.
func (t *Tree) checkQuota(path string, znodes, bytes int64) error {
	if len(t.quotas) == 0 {
		return nil
	}
	return t.checkHardLimits(path, znodes, bytes)
}

func (t *Tree) checkHardLimits(path string, znodes, bytes int64) error {
	subtree, v := t.quotaFor(path, (*entry).before)
	if v == nil {
		return nil
	}
	limits, readable := parseTrack(v.bytes())
	_, used, ok := t.usage(subtree, (*entry).before)
	switch {
	case !readable || !ok:
	case znodes != 0 && limits.exceeds(countHardKey, used.get(countKey)+znodes):
		return fmt.Errorf("%w: the subtree may have %d znodes", ErrQuotaExceeded, limits[countHardKey]) // whose path a chroot may hide
	case bytes != 0 && limits.exceeds(bytesHardKey, used.get(bytesKey)+bytes):
		return fmt.Errorf("%w: the subtree may have %d bytes of data", ErrQuotaExceeded, limits[bytesHardKey])
	}
	return nil
}

// charge writes into the stats of the deepest quota that a path lies in so many znodes and bytes more. That is no write of
// the stats znode: its version and zxids stay, and nobody is told.
func (t *Tree) charge(path string, znodes, bytes int64) {
	if len(t.quotas) > 0 && (znodes != 0 || bytes != 0) {
		t.chargeDeepest(path, znodes, bytes)
	}
}

func (t *Tree) chargeDeepest(path string, znodes, bytes int64) {
	subtree, limits := t.quotaFor(path, (*entry).current)
	if limits == nil {
		return
	}
	stats, used, ok := t.usage(subtree, (*entry).current)
	if !ok {
		return
	}
	used[countKey], used[bytesKey] = used.get(countKey)+znodes, used.get(bytesKey)+bytes
	t.stage(stats).setData(used.text())
	t.charged = append(t.charged, subtree)
}

// checkRecount lets a transaction create the stats of one quota. Each walks a whole subtree while everybody waits.
func (t *Tree) checkRecount(path string) error {
	if _, ok := quotaOf(path, statsName); !ok {
		return nil
	}
	if t.recounted {
		return fmt.Errorf("%w: a transaction can create the stats of one quota", ErrQuotaExceeded)
	}
	t.recounted = true
	return nil
}

// recount writes into a new znode of stats what its subtree uses, quotas deeper in it or not.
func (t *Tree) recount(e *entry) {
	subtree, ok := quotaOf(e.path, statsName)
	if !ok {
		return
	}
	used := track{countKey: 0, bytesKey: 0}
	if root := t.index.get(subtree); root != nil && root.current() != nil {
		t.addUsage(used, subtree, root.current())
	}
	t.stage(e).setData(used.text())
}

func (t *Tree) addUsage(used track, path string, v *version) {
	used[countKey]++
	used[bytesKey] += int64(len(v.data))
	for _, name := range v.names() {
		child := path + "/" + name
		t.addUsage(used, child, t.index.get(child).current())
	}
}

// Over returns the subtrees whose use the newest transaction raised, to above a soft limit of their quota. Of what has a
// hard limit the soft one does not count. Paths are in order; there are none if the transaction failed. The slice is valid
// until the next Apply or Reap.
func (t *Tree) Over() []string { return t.over }

// findOver makes what Over returns, before the staged versions are installed.
func (t *Tree) findOver() {
	slices.Sort(t.charged)
	for _, subtree := range slices.Compact(t.charged) {
		if t.isOver(subtree) {
			t.over = append(t.over, subtree)
		}
	}
	t.charged = nil
}

func (t *Tree) isOver(subtree string) bool {
	e := t.quotas[subtree]
	if e == nil || e.current() == nil {
		return false
	}
	limits, readable := parseTrack(e.current().bytes())
	_, was, known := t.usage(subtree, (*entry).before)
	_, is, ok := t.usage(subtree, (*entry).current)
	over := func(soft, hard string) bool {
		return limits.get(hard) < 0 && is.get(soft) > was.get(soft) && limits.exceeds(soft, is.get(soft))
	}
	return readable && known && ok && (over(countKey, countHardKey) || over(bytesKey, bytesHardKey))
}

// addEntry adds an entry to the index, and to the quotas if it is one.
func (t *Tree) addEntry(e *entry) {
	t.index.add(e)
	t.addQuota(e)
}

func (t *Tree) addQuota(e *entry) {
	if subtree, ok := quotaOf(e.path, limitsName); ok {
		t.quotas[subtree] = e
	}
}

// removeEntry takes an entry out again.
func (t *Tree) removeEntry(e *entry) {
	t.index.remove(e.path)
	if subtree, ok := quotaOf(e.path, limitsName); ok {
		delete(t.quotas, subtree)
	}
}
