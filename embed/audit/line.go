package audit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vivarium-go/vivarium/embed"
)

// lineMax bounds a line. A path, an ACL and the identities have up to 64 KiB each, and JSON may
// need six times as much for a text.
const lineMax = 2 << 20

// gapOp is the Op of a record that says what is missing.
const gapOp = "gap"

// A line is a record as it is written.
type line struct {
	Time    time.Time `json:"time"`
	Shard   int       `json:"shard,omitempty"`
	Zxid    int64     `json:"zxid,omitempty"`
	Op      string    `json:"op"`
	Path    string    `json:"path,omitempty"`
	Mode    string    `json:"mode,omitempty"`
	ACL     []acl     `json:"acl,omitempty"`
	Version int32     `json:"version,omitempty"`
	Session int64     `json:"session,omitempty"`
	Member  uint64    `json:"member,omitempty"`
	Client  string    `json:"client,omitempty"`
	Who     []string  `json:"who,omitempty"`
	Why     string    `json:"why,omitempty"`
	Result  string    `json:"result,omitempty"`
	After   int64     `json:"after,omitempty"`
	Lost    uint64    `json:"lost,omitempty"`
}

type acl struct {
	Perms  embed.Perms `json:"perms"`
	Scheme string      `json:"scheme"`
	ID     string      `json:"id"`
}

// encode returns the line of a record, with its end.
func encode(r embed.AuditRecord) []byte {
	l := line{
		Time: r.Time, Shard: r.Shard, Zxid: int64(r.Zxid), Op: r.Op, Path: r.Path, Version: r.Version,
		Session: int64(r.Session), Member: uint64(r.Member), Client: r.Client, Who: r.Identities,
		Why: r.Why, Result: r.Result, After: int64(r.After), Lost: r.Lost,
	}
	if r.Mode != embed.Persistent {
		l.Mode = r.Mode.String()
	}
	for _, a := range r.ACL {
		l.ACL = append(l.ACL, acl{a.Perms, a.Scheme, a.ID})
	}
	text, err := json.Marshal(l)
	if err != nil { // a time after the year 9999: a member's clock may show anything
		l.Time = time.Time{}
		text, _ = json.Marshal(l)
	}
	return append(text, '\n')
}

// decode returns the record of a line, and false if the line is torn.
func decode(text []byte) (r embed.AuditRecord, ok bool) {
	var l line
	if json.Unmarshal(text, &l) != nil || l.Op == "" {
		return r, false
	}
	r = embed.AuditRecord{
		Time: l.Time, Shard: l.Shard, Zxid: embed.Zxid(l.Zxid), Op: l.Op, Path: l.Path,
		Mode: modes[l.Mode], Version: l.Version, Session: embed.SessionID(l.Session),
		Member: embed.MemberID(l.Member), Client: l.Client, Identities: l.Who,
		Why: l.Why, Result: l.Result, After: embed.Zxid(l.After), Lost: l.Lost,
	}
	for _, a := range l.ACL {
		r.ACL = append(r.ACL, embed.ACL{Perms: a.Perms, Scheme: a.Scheme, ID: a.ID})
	}
	return r, true
}

// modes are the create modes by their names.
var modes = func() map[string]embed.CreateMode {
	m := make(map[string]embed.CreateMode)
	for mode := embed.Persistent; mode.Validate() == nil; mode++ {
		m[mode.String()] = mode
	}
	return m
}()

// firstLine returns what stands before the first end of a line.
func firstLine(text []byte) []byte {
	first, _, _ := bytes.Cut(text, []byte{'\n'})
	return first
}

const (
	namePrefix = "audit-"
	nameSuffix = ".jsonl"
)

func nameOf(number int) string { return fmt.Sprintf("%s%010d%s", namePrefix, number, nameSuffix) }

// numbers returns the numbers of the files among the names, ascending.
func numbers(names []string) (list []int) {
	for _, name := range names {
		digits, ok := strings.CutPrefix(filepath.Base(name), namePrefix)
		digits, is := strings.CutSuffix(digits, nameSuffix)
		n, err := strconv.Atoi(digits)
		if ok && is && err == nil && n > 0 && nameOf(n) == filepath.Base(name) {
			list = append(list, n)
		}
	}
	slices.Sort(list)
	return list
}
