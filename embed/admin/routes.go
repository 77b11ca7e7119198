package admin

import (
	"bytes"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/vivarium-go/vivarium/embed/metrics"
)

// A route answers the requests of one method on one path.
type route struct {
	role   Role          // what it takes
	probe  bool          // Options.OpenProbes lets everybody ask
	params []string      // that the query may have
	limit  chan struct{} // how many may run; nil: any number
	serve  func(c *call) error
}

// methods are the routes of one path.
type methods map[string]route

// allow lists the methods as the header Allow does.
func (m methods) allow() string {
	names := slices.Sorted(maps.Keys(m))
	if r, ok := m[http.MethodGet]; ok && r.limit == nil {
		names = append(names, http.MethodHead)
	}
	return strings.Join(names, ", ")
}

// table returns the routes by path.
func (h *Handler) table() map[string]methods {
	const get, put, post, del = http.MethodGet, http.MethodPut, http.MethodPost, http.MethodDelete
	view := func(serve func(*call) error, params ...string) methods {
		return methods{get: {role: Viewer, params: params, serve: serve}}
	}
	long := func(r Role, serve func(*call) error, params ...string) methods {
		return methods{get: {role: r, params: params, limit: h.long, serve: serve}}
	}
	operate := func(serve func(*call) error) methods { return methods{post: {role: Operator, serve: serve}} }
	all := map[string]methods{
		"/livez":   {get: {role: Viewer, probe: true, serve: (*call).live}},
		"/readyz":  {get: {role: Viewer, probe: true, params: []string{"verbose"}, serve: (*call).ready}},
		"/metrics": {get: {role: Viewer, probe: true, serve: h.metrics()}},

		"/v1/status":   view((*call).status),
		"/v1/members":  view((*call).members),
		"/v1/sessions": view((*call).listSessions, "after", "limit"),
		"/v1/session":  view((*call).oneSession, "id"),
		"/v1/watches":  view((*call).watches, "limit"),
		"/v1/recent":   view((*call).recent, "limit"),
		"/v1/usage":    long(Viewer, (*call).usage, "path", "sync"),
		"/v1/find":     long(Viewer, (*call).find, "path", "name", "limit", "sync"),

		"/v1/znode": {
			get:  {role: Viewer, params: []string{"path", "view", "after", "limit", "sync"}, serve: (*call).read},
			put:  {role: Editor, params: []string{"path", "reason"}, serve: (*call).set},
			post: {role: Editor, params: []string{"path", "mode", "ttl", "acl", "parents", "reason"}, serve: (*call).create},
			del:  {role: Editor, params: []string{"path", "recursive", "expect", "reason"}, serve: (*call).remove},
		},
		"/v1/acl":    {put: {role: Editor, params: []string{"path", "aversion", "reason"}, serve: (*call).setACL}},
		"/v1/follow": {get: {role: Viewer, params: []string{"path"}, limit: h.follows, serve: (*call).follow}},

		"/v1/locks":        long(Viewer, (*call).locks, "root", "after", "limit", "sync"),
		"/v1/locks/graph":  long(Viewer, (*call).lockGraph, "root", "sync"),
		"/v1/locks/revoke": operate((*call).revoke),
		"/v1/locks/evict":  operate((*call).evict),
		"/v1/sessions/end": operate((*call).endSession),
		"/v1/leadership":   operate((*call).transfer),

		"/v1/audit":  long(Viewer, (*call).audit, "path", "below", "session", "since", "until", "limit"),
		"/v1/backup": long(Backup, (*call).backup),
		"/v1/export": long(Backup, (*call).export, "path"),
		"/v1/import": {post: {role: Editor, params: []string{"path", "as", "existing", "dryRun", "reason"}, limit: h.long, serve: (*call).imports}},

		"/v1/multi": {post: {role: Editor, params: []string{"reason"}, serve: (*call).multi}},
	}
	if h.options.ZooKeeper {
		commandRoutes(all)
	}
	return all
}

// metrics serves the metrics of the node and its gateways.
func (h *Handler) metrics() func(*call) error {
	sources := []metrics.Source{h.node}
	for _, g := range h.options.Gateways {
		sources = append(sources, g)
	}
	return func(c *call) error {
		var text bytes.Buffer
		if err := metrics.Write(&text, sources...); err != nil {
			return err
		}
		c.send(http.StatusOK, metrics.ContentType, text.Bytes())
		return nil
	}
}
