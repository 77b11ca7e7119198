package tree

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// A quota on the subtree X exists as long as the znode /zookeeper/quota/X/zookeeper_limits. The
// usage of the subtree is stored in its sibling zookeeper_stats, and nowhere else. So loading a
// tree rebuilds nothing, and replicas cannot disagree about it. Both are ordinary znodes: who may
// write them may also invent numbers, and needs Admin on the subtree.
const (
	limitsName = "/zookeeper_limits"
	statsName  = "/zookeeper_stats"
)

// quotaOf returns the subtree of a quota's znode with the given name, one of the two above. The
// root cannot have a quota.
func quotaOf(path, name string) (subtree string, ok bool) {
	rest, ok := strings.CutPrefix(path, quotaPath)
	if !ok {
		return "", false
	}
	subtree, ok = strings.CutSuffix(rest, name)
	return subtree, ok && strings.HasPrefix(subtree, "/")
}

// permitQuota returns ErrNoAuth unless the requester has Admin on the subtree of a quota's znode. If
// the subtree does not exist, its nearest ancestor that does exist decides, for who may do anything
// there could also be the first to create the subtree.
func (t *Tree) permitQuota(path string) error {
	rest, ok := strings.CutPrefix(path, quotaPath)
	if !ok || rest != "" && rest[0] != '/' {
		return nil
	}
	subtree, ok := quotaOf(path, limitsName)
	if !ok {
		if subtree, ok = quotaOf(path, statsName); !ok {
			subtree = rest
		}
	}
	for ; subtree != ""; subtree = subtree[:strings.LastIndexByte(subtree, '/')] {
		if e := t.index.get(subtree); e != nil && e.current() != nil {
			return t.permit(e.current().acl(), Admin)
		}
	}
	return t.permit(t.index.get(rootPath).current().acl(), Admin)
}

// The keys in a text of limits or of usage.
const (
	countKey     = "count"
	bytesKey     = "bytes"
	countHardKey = "countHardLimit"
	bytesHardKey = "byteHardLimit"
)

// A track is the parsed text of limits or of usage. A missing key is -1; as a limit, that means
// none.
type track map[string]int64

// trackMax limits the texts that are parsed: every write below a quota reads two of them.
const trackMax = 1 << 10

// parseTrack parses a text such as "count=1,bytes=2=;byteHardLimit=3". It returns false if the text
// is malformed or too long.
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

// text writes count and bytes first, and an odd "=" before other keys, for readers that know only
// these two.
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

// exceeds reports whether use is over the limit of the key, if it has one.
func (t track) exceeds(key string, use int64) bool {
	limit := t.get(key)
	return limit > -1 && use > limit
}

// A phase selects a version of a znode: (*entry).before or (*entry).current.
type phase func(*entry) *version

// quotaFor returns the deepest subtree with a quota that contains a path, and its limits. It
// returns nil limits if there is none.
func (t *Tree) quotaFor(path string, at phase) (subtree string, limits *version) {
	for subtree = path; subtree != ""; subtree = subtree[:strings.LastIndexByte(subtree, '/')] {
		if e := t.quotas[subtree]; e != nil && at(e) != nil {
			return subtree, at(e)
		}
	}
	return "", nil
}

// usage returns the recorded usage of the subtree, or false if there is none or it cannot be read.
func (t *Tree) usage(subtree string, at phase) (stats *entry, used track, ok bool) {
	stats = t.index.get(quotaPath + subtree + statsName)
	if stats == nil || at(stats) == nil {
		return nil, nil, false
	}
	used, ok = parseTrack(at(stats).bytes())
	return stats, used, ok
}

// checkQuota returns ErrQuotaExceeded if the given increase would exceed a hard limit. As in
// ZooKeeper, limits and usage are those before the transaction, without its earlier operations.
// Bytes are checked whenever they change, even if they shrink.
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
		return fmt.Errorf("%w: the subtree may have at most %d znodes", ErrQuotaExceeded, limits[countHardKey]) // its path may be hidden by a chroot
	case bytes != 0 && limits.exceeds(bytesHardKey, used.get(bytesKey)+bytes):
		return fmt.Errorf("%w: the subtree may have at most %d bytes of data", ErrQuotaExceeded, limits[bytesHardKey])
	}
	return nil
}

// charge adds znodes and bytes to the stats of the deepest quota that contains a path. It does not
// count as a write of the stats znode: version and zxids stay the same, and there is no Change.
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

// checkRecount allows a transaction to create the stats of one quota only. Each creation walks a
// whole subtree while everybody waits.
func (t *Tree) checkRecount(path string) error {
	if _, ok := quotaOf(path, statsName); !ok {
		return nil
	}
	if t.recounted {
		return fmt.Errorf("%w: a transaction can create the stats of only one quota", ErrQuotaExceeded)
	}
	t.recounted = true
	return nil
}

// recount sets a new stats znode to the usage of its subtree, including the parts under deeper
// quotas.
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

// Over returns the subtrees whose usage the newest transaction raised above a soft limit. A soft
// limit does not count if there is a hard one. The paths are in order. There are none if the
// transaction failed. The slice is valid until the next Apply or Reap.
func (t *Tree) Over() []string { return t.over }

// findOver computes the result of Over, before the staged versions are installed.
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

// addEntry adds an entry to the index, and to the quotas if it holds limits.
func (t *Tree) addEntry(e *entry) {
	t.index.add(e)
	t.addQuota(e)
}

func (t *Tree) addQuota(e *entry) {
	if subtree, ok := quotaOf(e.path, limitsName); ok {
		t.quotas[subtree] = e
	}
}

// removeEntry removes an entry from the index and the quotas.
func (t *Tree) removeEntry(e *entry) {
	t.index.remove(e.path)
	if subtree, ok := quotaOf(e.path, limitsName); ok {
		delete(t.quotas, subtree)
	}
}
