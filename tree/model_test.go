package tree

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"math/big"
	"net"
	"slices"
	"strings"
	"unicode/utf16"
)

// A model is the simplest possible tree: a map that is copied completely for every transaction. It
// finds children by looking at every path, and counts in the plainest way.
type model struct {
	znodes  map[string]modelZnode
	changes []Change
	touched map[string]bool // since the last drain
	applied Zxid
	base    *model          // the state before the transaction
	charged map[string]bool // quotas whose stats the transaction changed
	counted bool            // the transaction has created stats
}

type modelZnode struct {
	Znode
	cversion int32 // counted by creates and deletes, not derived
}

func newModel() *model {
	m := &model{znodes: map[string]modelZnode{}, touched: map[string]bool{}}
	for path, cversion := range map[string]int32{"/": -1, "/zookeeper": -2, "/zookeeper/quota": 0, "/zookeeper/config": 0} {
		z := modelZnode{Znode: Znode{Data: []byte{}}, cversion: cversion}
		if path == "/zookeeper/config" {
			z.Version, z.Aversion = -1, -1
			z.ACL = ReadACL()
		}
		m.znodes[path] = z
		m.touched[path] = true
	}
	return m
}

// clone returns a copy that shares nothing mutable.
func (m *model) clone() *model {
	return &model{maps.Clone(m.znodes), slices.Clone(m.changes), maps.Clone(m.touched), m.applied, nil, nil, false}
}

// next returns a copy for the next transaction.
func (m *model) next() *model {
	next := m.clone()
	next.changes, next.base, next.charged = nil, m, map[string]bool{}
	return next
}

// apply returns the model after the transaction. If it fails, apply returns the model unchanged.
func (m *model) apply(h Header, ops []Op) (*model, []Result, error) {
	next := m.next()
	var results []Result
	fail := func(i int, err error) (*model, []Result, error) {
		failed := m.clone()
		failed.changes = nil
		if len(ops) == 1 {
			return failed, nil, err
		}
		return failed, nil, &MultiError{i, err}
	}
	for i, op := range ops {
		if len(ops) > 1 && (op.Kind == 0 || op.Kind == KindSetACL || (op.Kind == KindLose || op.Kind == KindConfigure) && !h.System || op.Kind > 13) {
			return fail(i, ErrInvalidKind)
		}
		if len(ops) > 1 && op.Kind == KindCreate && op.Mode > 6 {
			return fail(i, ErrInvalidMode)
		}
	}
	for i, op := range ops {
		r, err := next.applyOp(h, op)
		if err != nil {
			return fail(i, err)
		}
		r.Kind = op.Kind
		results = append(results, r)
	}
	next.applied = h.Zxid
	return next, results, nil
}

func (m *model) applyOp(h Header, op Op) (Result, error) {
	switch op.Kind {
	case KindCreate:
		return m.create(h, op)
	case KindSet:
		return m.set(h, op)
	case KindDelete:
		return Result{}, m.delete(h, op)
	case KindCheck:
		return Result{}, m.check(h, op, Read)
	case KindSetACL:
		return m.setACL(h, op)
	case KindGuard:
		if z, ok := m.znodes[op.Path]; !ok || z.Czxid != op.Czxid || z.Owner == 0 || !m.mayKnow(h, op.Path) {
			return Result{}, ErrNotHeld
		}
		return Result{}, nil
	case KindCheckChildren:
		any := op
		any.Version = -1
		if err := m.check(h, any, Read); err != nil {
			return Result{}, err
		}
		if len(m.children(op.Path)) > int(op.Version) {
			return Result{}, ErrTooManyChildren
		}
		return Result{}, nil
	case KindLose:
		return Result{}, m.lose(h, op.Path)
	case KindConfigure:
		return Result{}, m.configure(h, op.Data)
	case KindCheckMzxid, KindCheckLost:
		if err := m.check(h, Op{Path: op.Path, Version: -1}, Read); err != nil {
			return Result{}, err
		}
		z := m.znodes[op.Path]
		if z.Mzxid != op.Mzxid || op.Kind == KindCheckLost && (z.Owner != 0 || z.TTL == 0) {
			return Result{}, ErrBadVersion
		}
		return Result{}, nil
	case KindAdd:
		return m.add(h, op)
	case KindEnsure:
		if !modelValid(op.Path) {
			return Result{}, ErrInvalidPath
		}
		if _, ok := m.znodes[op.Path]; ok {
			return Result{}, nil
		}
		return m.create(h, Op{Path: op.Path, Mode: Container})
	}
	return Result{}, ErrInvalidKind
}

func (m *model) create(h Header, op Op) (Result, error) {
	ephemeral := op.Mode == Ephemeral || op.Mode == EphemeralSequential
	if op.Mode > 6 {
		return Result{}, ErrInvalidMode
	}
	if op.Mode >= 5 && op.TTL <= 0 || op.TTL < 0 || op.TTL >= 1<<40 || op.Mode < 5 && !ephemeral && op.TTL != 0 {
		return Result{}, ErrInvalidTTL
	}
	if ephemeral && h.Session == 0 {
		return Result{}, ErrInvalidMode
	}
	if !strings.Contains(op.Path, "/") || strings.Contains(op.Path, "\x00") {
		return Result{}, ErrInvalidPath
	}
	acl := []ACL{{31, "world", "anyone"}}
	if op.ACL != nil {
		if acl = modelFix(op.ACL, h.Identities); len(acl) == 0 {
			return Result{}, ErrInvalidACL
		}
	}
	parentPath := op.Path[:strings.LastIndex(op.Path, "/")]
	if parentPath == "" {
		parentPath = "/"
	}
	parent, ok := m.znodes[parentPath]
	if !ok {
		return Result{}, ErrNoNode
	}
	if !h.System && !modelMay(parent.ACL, h.Identities, 4) || !m.mayLimit(h, op.Path) {
		return Result{}, ErrNoAuth
	}
	path := op.Path
	if op.Mode == Sequential || op.Mode == EphemeralSequential || op.Mode == SequentialTTL {
		path += fmt.Sprintf("%010d", parent.Created)
	}
	if !modelValid(path) {
		return Result{}, ErrInvalidPath
	}
	if _, ok := m.znodes[path]; ok {
		return Result{}, ErrNodeExists
	}
	if parent.Owner != 0 {
		return Result{}, ErrNoChildrenForEphemerals
	}
	if _, stats := modelQuota(path, "/zookeeper_stats"); stats && !m.base.refuses(path, 1, len(op.Data)) {
		if m.counted {
			return Result{}, ErrQuotaExceeded
		}
		m.counted = true
	}
	if m.base.refuses(path, 1, len(op.Data)) {
		return Result{}, ErrQuotaExceeded
	}
	z := modelZnode{Znode: Znode{Czxid: h.Zxid, Mzxid: h.Zxid, Pzxid: h.Zxid, Ctime: h.Time, Mtime: h.Time, Data: slices.Clone(op.Data)}}
	if ephemeral {
		z.Owner = h.Session
	}
	z.ACL, z.TTL, z.Container = modelStored(acl), op.TTL, op.Mode == Container
	m.znodes[path] = z
	if parent.Created == math.MaxInt32 {
		parent.cversion--
	} else {
		parent.Created++
		parent.cversion++
	}
	parent.Pzxid = h.Zxid
	m.znodes[parentPath] = parent
	m.change(Change{Created, false, path, z.Owner, z.ACL, parent.ACL, nil}, parentPath)
	if subtree, ok := modelQuota(path, "/zookeeper_stats"); ok {
		z.Data = m.recounted(subtree)
		m.znodes[path] = z
	}
	m.charge(path, 1, len(op.Data))
	return Result{Path: path, Stat: m.stat(path, m.children(path))}, nil
}

func (m *model) set(h Header, op Op) (Result, error) {
	any := op
	any.Version = -1
	if err := m.check(h, any, Write); err != nil {
		return Result{}, err
	}
	z := m.znodes[op.Path]
	more := len(op.Data) - len(z.Data)
	if m.base.refuses(op.Path, 0, more) {
		return Result{}, ErrQuotaExceeded
	}
	if err := m.check(h, op, Write); err != nil {
		return Result{}, err
	}
	z.Mzxid, z.Mtime, z.Data = h.Zxid, h.Time, slices.Clone(op.Data)
	z.Version++
	if z.Version == -1 {
		z.Version = 0
	}
	m.znodes[op.Path] = z
	m.change(Change{Type: DataChanged, Path: op.Path, Owner: z.Owner, ACL: z.ACL})
	m.charge(op.Path, 0, more)
	return Result{Stat: m.stat(op.Path, m.children(op.Path))}, nil
}

func (m *model) add(h Header, op Op) (Result, error) {
	if op.Width > 2 {
		return Result{}, ErrInvalidMode
	}
	for _, need := range []Perms{Write, Read} {
		if err := m.check(h, Op{Path: op.Path, Version: -1}, need); err != nil {
			return Result{}, err
		}
	}
	n, ok := new(big.Int), true
	switch data := m.znodes[op.Path].Data; {
	case len(data) == 0:
	case op.Width == Text:
		n, ok = n.SetString(string(data), 10)
		ok = ok && n.IsInt64()
	default:
		n.SetBytes(data)
		if data[0] > 127 {
			n.Sub(n, new(big.Int).Lsh(big.NewInt(1), uint(8*len(data))))
		}
		ok = len(data) == []int{8, 4}[op.Width]
	}
	if !ok {
		return Result{}, ErrNotNumber
	}
	n.Add(n, big.NewInt(op.Delta))
	if !n.IsInt64() || op.Width == Int32 && (n.Int64() > math.MaxInt32 || n.Int64() < math.MinInt32) {
		return Result{}, ErrOverflow
	}
	data := []byte(n.String())
	if op.Width != Text {
		size := []int{8, 4}[op.Width]
		data = new(big.Int).And(n, new(big.Int).SetBytes(bytes.Repeat([]byte{255}, size))).FillBytes(make([]byte, size))
	}
	r, err := m.set(h, Op{Path: op.Path, Data: data, Version: -1})
	if err == nil {
		r.Value = n.Int64()
	}
	return r, err
}

func (m *model) setACL(h Header, op Op) (Result, error) {
	if !modelValid(op.Path) {
		return Result{}, ErrInvalidPath
	}
	acl := modelFix(op.ACL, h.Identities)
	if len(acl) == 0 {
		return Result{}, ErrInvalidACL
	}
	z, ok := m.znodes[op.Path]
	if !ok {
		return Result{}, ErrNoNode
	}
	if !h.System && !modelMay(z.ACL, h.Identities, 16) || !m.mayLimit(h, op.Path) {
		return Result{}, ErrNoAuth
	}
	if op.Version != -1 && op.Version != z.Aversion {
		return Result{}, ErrBadVersion
	}
	z.Aversion++
	if z.Aversion == -1 {
		z.Aversion = 0
	}
	former := z.ACL
	z.ACL = modelStored(acl)
	m.znodes[op.Path] = z
	m.change(Change{Type: ACLChanged, Path: op.Path, Owner: z.Owner, ACL: z.ACL, FormerACL: former})
	return Result{Stat: m.stat(op.Path, m.children(op.Path))}, nil
}

// mayKnow reports whether the requester may know which transaction created a znode.
func (m *model) mayKnow(h Header, path string) bool {
	z := m.znodes[path]
	return h.System || z.Owner != 0 && z.Owner == h.Session || modelMay(z.ACL, h.Identities, 1)
}

func (m *model) delete(h Header, op Op) error {
	if !strings.Contains(op.Path, "/") || strings.Contains(op.Path, "\x00") {
		return ErrInvalidPath
	}
	if slices.Contains([]string{"/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config"}, op.Path) {
		return ErrInvalidPath
	}
	z, ok := m.znodes[op.Path]
	if op.Czxid != 0 && (!ok || z.Czxid != op.Czxid || !m.mayKnow(h, op.Path)) {
		return ErrNotHeld
	}
	parent, parentOK := m.znodes[modelParent(op.Path)]
	if !parentOK {
		return ErrNoNode
	}
	own := op.Czxid != 0 && ok && h.Session != 0 && z.Owner == h.Session
	if !own && !h.System && !modelMay(parent.ACL, h.Identities, 8) {
		return ErrNoAuth
	}
	if !ok {
		return ErrNoNode
	}
	if !own && !m.mayLimit(h, op.Path) {
		return ErrNoAuth
	}
	if op.Version != -1 && op.Version != z.Version {
		return ErrBadVersion
	}
	if len(m.children(op.Path)) > 0 {
		return ErrNotEmpty
	}
	m.remove(h, op.Path)
	return nil
}

func (m *model) remove(h Header, path string) {
	z := m.znodes[path]
	delete(m.znodes, path)
	parentPath := modelParent(path)
	parent := m.znodes[parentPath]
	parent.cversion++
	parent.Pzxid = h.Zxid
	m.znodes[parentPath] = parent
	m.change(Change{Deleted, false, path, z.Owner, z.ACL, parent.ACL, nil}, parentPath)
	m.charge(path, -1, -len(z.Data))
}

func (m *model) lose(h Header, path string) error {
	z, ok := m.znodes[path]
	switch {
	case !h.System:
		return ErrInvalidKind
	case !modelValid(path):
		return ErrInvalidPath
	case !ok:
		return ErrNoNode
	case z.Owner == 0 || z.Owner != h.Session:
		return ErrNotHeld
	case z.TTL == 0:
		m.remove(h, path)
		return nil
	}
	z.Mzxid, z.Mtime, z.Owner = h.Zxid, h.Time, 0
	if z.Version++; z.Version == -1 {
		z.Version = 0
	}
	m.znodes[path] = z
	m.change(Change{Type: DataChanged, Path: path, Owner: h.Session, Lost: true, ACL: z.ACL})
	return nil
}

func (m *model) configure(h Header, data []byte) error {
	if !h.System {
		return ErrInvalidKind
	}
	z := m.znodes["/zookeeper/config"]
	more := len(data) - len(z.Data)
	z.Mzxid, z.Mtime, z.Data, z.Version = h.Zxid, h.Time, slices.Clone(data), -1
	m.znodes["/zookeeper/config"] = z
	m.change(Change{Type: DataChanged, Path: "/zookeeper/config", ACL: z.ACL})
	m.charge("/zookeeper/config", 0, more)
	return nil
}

func (m *model) check(h Header, op Op, need Perms) error {
	if !modelValid(op.Path) {
		return ErrInvalidPath
	}
	z, ok := m.znodes[op.Path]
	if !ok {
		return ErrNoNode
	}
	if !h.System && !modelMay(z.ACL, h.Identities, need) || need == Write && !m.mayLimit(h, op.Path) {
		return ErrNoAuth
	}
	if op.Version != -1 && op.Version != z.Version {
		return ErrBadVersion
	}
	return nil
}

// reap returns the model after the reaper's transaction, or its error.
func (m *model) reap(h Header, path string, seen Seen) (*model, error) {
	next := m.next()
	z, ok := m.znodes[path]
	switch {
	case !ok:
		return next, ErrNoNode
	case !z.Container && z.TTL == 0, z.Owner != 0, Seen{z.Czxid, z.Mzxid, z.Pzxid} != seen:
		return next, ErrBadVersion
	case len(m.children(path)) > 0:
		return next, ErrNotEmpty
	}
	next.remove(h, path)
	next.applied = h.Zxid
	return next, nil
}

func (m *model) mortals() []Mortal {
	var all []Mortal
	for _, path := range slices.Sorted(maps.Keys(m.znodes)) {
		z := m.znodes[path]
		children := len(m.children(path)) > 0
		if z.Container && !children || z.TTL > 0 && z.Owner == 0 {
			all = append(all, Mortal{path, Seen{z.Czxid, z.Mzxid, z.Pzxid}, z.TTL, z.Created > 0, children, 0})
		}
	}
	return all
}

func (m *model) change(c Change, also ...string) {
	m.changes = append(m.changes, c)
	for _, p := range append(also, c.Path) {
		m.touched[p] = true
	}
}

// modelStored returns a list in its stored form.
func modelStored(acl []ACL) []ACL {
	if len(acl) == 1 && acl[0] == (ACL{31, "world", "anyone"}) {
		return nil
	}
	return acl
}

// modelFix applies the fix-up of the catalogue of ZooKeeper's rules. It returns an empty list if
// the request is invalid.
func modelFix(asked []ACL, who []Identity) []ACL {
	var fixed []ACL
	for i, a := range asked {
		switch {
		case slices.Index(asked, a) < i:
		case a.Scheme == "world" && a.ID == "anyone":
			fixed = append(fixed, a)
		case a.Scheme == "digest" && modelDigestValid(a.ID), a.Scheme == "ip" && modelNetwork(a.ID) != nil:
			fixed = append(fixed, a)
		case a.Scheme == "auth" && slices.ContainsFunc(who, func(i Identity) bool { return i.Scheme == "digest" }):
			for _, i := range who {
				if i.Scheme == "digest" {
					fixed = append(fixed, ACL{a.Perms, "digest", i.ID})
				}
			}
		default:
			return nil
		}
	}
	return fixed
}

// modelDigestValid splits as Java does: empty parts at the end are dropped.
func modelDigestValid(id string) bool {
	parts := strings.Split(id, ":")
	for len(parts) > 0 && parts[len(parts)-1] == "" {
		parts = parts[:len(parts)-1]
	}
	return len(parts) == 2
}

// modelNetwork returns the network in an ip entry's id, or nil if the id is invalid.
func modelNetwork(id string) *net.IPNet {
	if !strings.Contains(id, "/") && strings.Contains(id, ":") {
		id += "/128"
	} else if !strings.Contains(id, "/") {
		id += "/32"
	}
	_, network, err := net.ParseCIDR(id)
	if err != nil || strings.Contains(id, ":") && strings.Contains(id, ".") {
		return nil
	}
	return network
}

// modelMay reports whether a list allows who any of the needed permissions.
func modelMay(acl []ACL, who []Identity, need Perms) bool {
	may := acl == nil
	for _, i := range who {
		may = may || i.Scheme == "super"
	}
	for _, a := range acl {
		if a.Perms&need == 0 {
			continue
		}
		may = may || a.Scheme == "world"
		for _, i := range who {
			may = may || a.Scheme == "digest" && i.Scheme == "digest" && a.ID == i.ID
			may = may || a.Scheme == "ip" && i.Scheme == "ip" && modelNetwork(a.ID).Contains(net.ParseIP(i.ID))
		}
	}
	return may
}

// modelQuota returns the subtree of a limits or stats znode.
func modelQuota(path, name string) (string, bool) {
	if !strings.HasPrefix(path, "/zookeeper/quota/") || !strings.HasSuffix(path, name) || len(path) < len("/zookeeper/quota/x")+len(name) {
		return "", false
	}
	return path[len("/zookeeper/quota") : len(path)-len(name)], true
}

// mayLimit reports whether a requester may write below /zookeeper/quota: it needs Admin on what is
// limited, or on the nearest znode above it.
func (m *model) mayLimit(h Header, path string) bool {
	if h.System || !strings.HasPrefix(path+"/", "/zookeeper/quota/") {
		return true
	}
	at := path[len("/zookeeper/quota"):]
	for _, name := range []string{"/zookeeper_stats", "/zookeeper_limits"} {
		if subtree, ok := modelQuota(path, name); ok {
			at = subtree
		}
	}
	for at != "" && at != "/" {
		if z, ok := m.znodes[at]; ok {
			return modelMay(z.ACL, h.Identities, 16)
		}
		at = modelParent(at)
	}
	return modelMay(m.znodes["/"].ACL, h.Identities, 16)
}

// quotaOver returns the deepest subtree with limits that contains a path.
func (m *model) quotaOver(path string) (subtree string, limits map[string]int64) {
	deepest := ""
	for p := range m.znodes {
		if x, ok := modelQuota(p, "/zookeeper_limits"); ok && strings.HasPrefix(path+"/", x+"/") && len(x) > len(deepest) {
			deepest = x
		}
	}
	return deepest, modelTrack(m.znodes["/zookeeper/quota"+deepest+"/zookeeper_limits"].Data)
}

func (m *model) stats(subtree string) map[string]int64 {
	z, ok := m.znodes["/zookeeper/quota"+subtree+"/zookeeper_stats"]
	if !ok {
		return nil
	}
	return modelTrack(z.Data)
}

// modelTrack parses limits or a usage. It returns nil if they cannot be read.
func modelTrack(text []byte) map[string]int64 {
	if len(text) > 1024 {
		return nil
	}
	m := map[string]int64{"count": -1, "bytes": -1, "countHardLimit": -1, "byteHardLimit": -1}
	for _, pair := range strings.Split(strings.ReplaceAll(string(text), ";", ","), ",") {
		if pair == "" {
			continue
		}
		words := strings.Split(pair, "=")
		if len(words) < 2 {
			return nil
		}
		var n big.Int
		if _, ok := n.SetString(words[1], 10); !ok || !n.IsInt64() || strings.Contains(words[1], "_") {
			return nil
		}
		m[words[0]] = n.Int64()
	}
	return m
}

// refuses reports whether a hard limit would be exceeded.
func (m *model) refuses(path string, znodes, bytes int) bool {
	subtree, limits := m.quotaOver(path)
	used := m.stats(subtree)
	if subtree == "" || limits == nil || used == nil {
		return false
	}
	count, size := limits["countHardLimit"], limits["byteHardLimit"]
	return znodes != 0 && count >= 0 && used["count"]+int64(znodes) > count || bytes != 0 && size >= 0 && used["bytes"]+int64(bytes) > size
}

func (m *model) charge(path string, znodes, bytes int) {
	subtree, _ := m.quotaOver(path)
	used := m.stats(subtree)
	if subtree == "" || used == nil || znodes == 0 && bytes == 0 {
		return
	}
	used["count"] += int64(znodes)
	used["bytes"] += int64(bytes)
	statsPath := "/zookeeper/quota" + subtree + "/zookeeper_stats"
	z := m.znodes[statsPath]
	written := modelKeys(string(z.Data))
	z.Data = []byte(fmt.Sprintf("count=%d,bytes=%d", used["count"], used["bytes"]))
	odd := "="
	for _, key := range slices.Sorted(maps.Keys(used)) {
		if key != "count" && key != "bytes" && written[key] {
			z.Data = append(z.Data, fmt.Sprintf("%s;%s=%d", odd, key, used[key])...)
			odd = ""
		}
	}
	m.znodes[statsPath] = z
	m.touched[statsPath] = true
	m.charged[subtree] = true
}

// modelKeys returns the keys in a text.
func modelKeys(text string) map[string]bool {
	keys := map[string]bool{}
	for _, pair := range strings.Split(strings.ReplaceAll(text, ";", ","), ",") {
		if pair != "" {
			keys[strings.Split(pair, "=")[0]] = true
		}
	}
	return keys
}

func (m *model) recounted(subtree string) []byte {
	count, size := 0, 0
	for p, z := range m.znodes {
		if strings.HasPrefix(p+"/", subtree+"/") {
			count++
			size += len(z.Data)
		}
	}
	return []byte(fmt.Sprintf("count=%d,bytes=%d", count, size))
}

// over returns what Over must return after the transaction that made the model.
func (m *model) over() []string {
	var list []string
	for _, x := range slices.Sorted(maps.Keys(m.charged)) {
		z, active := m.znodes["/zookeeper/quota"+x+"/zookeeper_limits"]
		limits, was, is := modelTrack(z.Data), m.base.stats(x), m.stats(x)
		if !active || limits == nil || was == nil || is == nil {
			continue
		}
		over := func(soft, hard string) bool {
			return limits[hard] < 0 && limits[soft] >= 0 && is[soft] > limits[soft] && is[soft] > was[soft]
		}
		if over("count", "countHardLimit") || over("bytes", "byteHardLimit") {
			list = append(list, x)
		}
	}
	return list
}

// children returns the sorted names of a path's children.
func (m *model) children(path string) []string {
	names := []string{}
	for p := range m.znodes {
		if p != "/" && modelParent(p) == path {
			names = append(names, p[strings.LastIndex(p, "/")+1:])
		}
	}
	slices.Sort(names)
	return names
}

// allChildren returns children for every path.
func (m *model) allChildren() map[string][]string {
	all := map[string][]string{}
	for _, p := range slices.Sorted(maps.Keys(m.znodes)) {
		if p != "/" {
			all[modelParent(p)] = append(all[modelParent(p)], p[strings.LastIndex(p, "/")+1:])
		}
	}
	return all
}

func (m *model) descendants(path string) int {
	n := 0
	for p := range m.znodes {
		if p != "/" && strings.HasPrefix(p, strings.TrimSuffix(path, "/")+"/") {
			n++
		}
	}
	return n
}

// acl returns what a view must show of a list.
func (m *model) acl(who []Identity, path string) ([]ACL, error) {
	z, ok := m.znodes[path]
	switch {
	case !ok:
		return nil, ErrNoNode
	case z.ACL == nil:
		return []ACL{{31, "world", "anyone"}}, nil
	case modelMay(z.ACL, who, 16):
		return z.ACL, nil
	case !modelMay(z.ACL, who, 1):
		return nil, ErrNoAuth
	}
	var masked []ACL
	for _, a := range z.ACL {
		if a.Scheme == "digest" {
			a.ID = a.ID[:strings.Index(a.ID, ":")] + ":x"
		}
		masked = append(masked, a)
	}
	return masked, nil
}

// before finds the predecessor among the names of the siblings.
func (m *model) before(path string, siblings, match []string) (string, bool, error) {
	if _, ok := m.znodes[path]; !ok {
		return "", false, ErrNoNode
	}
	if path == "/" {
		return "", false, nil
	}
	own := path[strings.LastIndex(path, "/")+1:]
	if modelSuffix(own) == "" {
		return "", false, nil
	}
	best, found := "", false
	key := func(s string) string { return modelSuffix(s) + s }
	ownKey, bestKey := key(own), ""
	for _, name := range siblings {
		if modelSuffix(name) == "" || !modelMatches(name, match) {
			continue
		}
		if k := key(name); k < ownKey && k > bestKey {
			best, bestKey, found = name, k, true
		}
	}
	return best, found, nil
}

// stat returns the Stat of a znode whose children have the given names.
func (m *model) stat(path string, names []string) Stat {
	z := m.znodes[path]
	state := newState(&z.Znode)
	s := state.stat()
	s.Cversion = z.cversion
	s.NumChildren = int32(len(names))
	return s
}

func modelMatches(name string, match []string) bool {
	for _, s := range match {
		if strings.Contains(name, s) {
			return true
		}
	}
	return len(match) == 0
}

func modelSuffix(name string) string {
	if len(name) < 10 || strings.Trim(name[len(name)-10:], "0123456789") != "" {
		return ""
	}
	return name[len(name)-10:]
}

func modelParent(path string) string {
	i := strings.LastIndex(path, "/")
	if i == 0 {
		return "/"
	}
	return path[:i]
}

// modelValid applies the catalogue's rule to UTF-16 code units, as ZooKeeper does.
func modelValid(path string) bool {
	if path == "/" {
		return true
	}
	if !strings.HasPrefix(path, "/") || strings.HasSuffix(path, "/") {
		return false
	}
	for _, name := range strings.Split(path[1:], "/") {
		if name == "" || name == "." || name == ".." {
			return false
		}
	}
	for _, c := range utf16.Encode([]rune(path)) {
		if c <= 0x1f || c >= 0x7f && c <= 0x9f || c >= 0xd800 && c <= 0xf8ff || c >= 0xfff0 {
			return false
		}
	}
	return true
}
