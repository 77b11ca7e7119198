package admin

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/audit"
)

type recordAnswer struct {
	Time    time.Time      `json:"time"`
	Shard   int            `json:"shard,omitempty"`
	Zxid    string         `json:"zxid,omitempty"`
	Op      string         `json:"op"`
	Path    string         `json:"path,omitempty"`
	Mode    string         `json:"mode,omitempty"`
	ACL     []aclJSON      `json:"acl,omitempty"`
	Version int32          `json:"version,omitempty"`
	Session string         `json:"session,omitempty"`
	Member  embed.MemberID `json:"member,omitempty"`
	Client  string         `json:"client,omitempty"`
	Who     []string       `json:"who,omitempty"`
	Why     string         `json:"why,omitempty"`
	Result  string         `json:"result,omitempty"`
	After   string         `json:"after,omitempty"`
	Lost    uint64         `json:"lost,omitempty"`
}

func recordOf(r embed.AuditRecord) recordAnswer {
	a := recordAnswer{Time: r.Time, Shard: r.Shard, Op: r.Op, Path: r.Path, ACL: aclOf(masked(r.ACL)), Version: r.Version, Member: r.Member,
		Client: r.Client, Who: r.Identities, Why: r.Why, Result: r.Result, Lost: r.Lost}
	if r.Mode != embed.Persistent {
		a.Mode = r.Mode.String()
	}
	if r.Zxid != 0 {
		a.Zxid = zxid(r.Zxid)
	}
	if r.After != 0 {
		a.After = zxid(r.After)
	}
	if r.Session != 0 {
		a.Session = sessionID(r.Session)
	}
	return a
}

// masked returns an ACL as it is shown to those who may not set it: a digest is a password's hash.
func masked(acl []embed.ACL) []embed.ACL {
	acl = slices.Clone(acl)
	for i, a := range acl {
		if user, _, ok := strings.Cut(a.ID, ":"); ok && a.Scheme == "digest" {
			acl[i].ID = user + ":x"
		}
	}
	return acl
}

// audit shows the newest records that match, the oldest of them first.
func (c *call) audit() error {
	if c.h.options.Audit == "" {
		return &refusal{http.StatusNotFound, "there is no audit: Options.Audit is empty"}
	}
	q, err := c.auditQuery()
	if err != nil {
		return err
	}
	n, err := c.limit()
	if err != nil {
		return err
	}
	list, more := []recordAnswer{}, false
	for r, err := range audit.Search(c.h.options.Audit, q) {
		if err == nil {
			err = c.r.Context().Err()
		}
		if err != nil {
			return err
		}
		if list = append(list, recordOf(r)); len(list) >= 2*n { // so each is moved once, on average
			list, more = append(list[:0], list[len(list)-n:]...), true
		}
	}
	if len(list) > n {
		list, more = list[len(list)-n:], true
	}
	return c.answer(http.StatusOK, map[string]any{"records": list, "more": more})
}

func (c *call) auditQuery() (q audit.Query, err error) {
	q.Path = c.path
	if q.Below, err = c.flag("below"); err != nil {
		return q, err
	}
	if text := c.query.Get("session"); text != "" {
		if q.Session, err = parseSession(text); err != nil {
			return q, err
		}
	}
	for name, to := range map[string]*time.Time{"since": &q.Since, "until": &q.Until} {
		text := c.query.Get(name)
		if text == "" {
			continue
		}
		if ago, err := time.ParseDuration(text); err == nil {
			*to = time.Now().Add(-ago)
		} else if *to, err = time.Parse(time.RFC3339, text); err != nil {
			return q, badRequest("%s is %q: want a time such as 2026-01-31T12:00:00Z, or a duration such as 2h", name, text)
		}
	}
	return q, nil
}
