package admin

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/gateway"
	"github.com/vivarium-go/vivarium/embed/internal/inside"
)

// Options say who may ask what. All fields except Authorize may be zero.
type Options struct {
	// Authorize says who sends a request, and what that one may do. Any number of goroutines call
	// it. It must not read the body. If the request proves nothing, the error matches
	// ErrUnauthorized, and the answer is 401. Any other error is logged, and the answer is 503.
	// Tokens and Certificates return such functions, and Open is one. Required.
	Authorize func(*http.Request) (Grant, error)
	// Hosts are the host names under which the Handler may be asked, without ports. They are
	// compared with the whole name, in any case of letters. IP addresses and "localhost" are always
	// allowed.
	Hosts []string
	// Origin may trust origins besides the one of the Host. Nil trusts none.
	Origin *http.CrossOriginProtection
	// Gateways are gateways of the node. Metrics and ZooKeeper's commands then tell of them too.
	Gateways []*gateway.Gateway
	// Audit is the directory in which the node's audit is kept, as audit.Config.Dir. Empty means
	// that there is none to search.
	Audit string
	// OpenProbes answers /livez, /readyz and /metrics without authorisation. The Host still counts:
	// a probe asks an IP address, or a name of Hosts.
	OpenProbes bool
	// Page also serves a page for people, at the root of the Handler. Anybody may load the page itself.
	// It holds nothing about the node, and asks for a token.
	Page bool
	// ZooKeeper also answers the commands of ZooKeeper's AdminServer, at /commands.
	ZooKeeper bool
}

// A Handler answers requests about a node. Its methods may be called by any number of goroutines.
// It lasts as long as the node, and works on after that: then it says that the node is over.
type Handler struct {
	node      *embed.Node
	parts     *inside.NodeParts
	log       *slog.Logger
	authorize func(*http.Request) (Grant, error)
	hosts     map[string]bool
	origin    *http.CrossOriginProtection
	options   Options
	routes    map[string]methods
	sessions  *lending
	long      chan struct{} // has an element for each long request
	follows   chan struct{} // and for each follow
	grumbles  chan time.Time
}

// How many requests of a kind may run at a time.
const (
	longMax   = 4
	followMax = 64
)

// CheckHost returns an error if a name cannot be one of Options.Hosts.
func CheckHost(name string) error {
	if name == "" || strings.ContainsAny(name, ":/*@ ") {
		return fmt.Errorf("is %q: want a host name without a port", name)
	}
	return nil
}

// New returns a Handler for a node. It fails if Options.Authorize is nil or a host is none.
func New(n *embed.Node, o Options) (*Handler, error) {
	if o.Authorize == nil {
		return nil, errors.New("admin: Options.Authorize is nil: say who may ask, for example with Tokens, Certificates or Open")
	}
	hosts := map[string]bool{"localhost": true}
	for i, name := range o.Hosts {
		if err := CheckHost(name); err != nil {
			return nil, fmt.Errorf("admin: Options.Hosts[%d] %w", i, err)
		}
		hosts[strings.ToLower(name)] = true
	}
	parts := (*inside.Node)(n).Parts()
	h := &Handler{
		node: n, parts: parts, log: parts.Config.Logger.With("member", parts.Engine.Member()),
		authorize: o.Authorize, hosts: hosts, origin: o.Origin, options: o,
		sessions: newLending(n), long: make(chan struct{}, longMax), follows: make(chan struct{}, followMax),
		grumbles: make(chan time.Time, 1),
	}
	if h.origin == nil {
		h.origin = http.NewCrossOriginProtection()
	}
	h.grumbles <- time.Time{}
	h.routes = h.table()
	return h, nil
}

// ServeHTTP answers a request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Cache-Control", "no-store")
	header.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'; sandbox")
	c := &call{h: h, w: w, r: r}
	c.bodyDeadline()
	if c.changes() {
		header.Set(outcomeHeader, refused) // until something else is known
	}
	if err := h.serve(c); err != nil {
		c.fail(err)
	}
}

// serve checks a request and carries it out.
func (h *Handler) serve(c *call) error {
	if !h.knows(c.r.Host) {
		return &refusal{http.StatusMisdirectedRequest, fmt.Sprintf("this is not the host %q: Options.Hosts has the names that may be asked", c.r.Host)}
	}
	if h.options.Page && !c.changes() && c.page(c.r.URL.Path) {
		return nil
	}
	found, known := h.routes[c.r.URL.Path]
	rt, allowed := found[c.method()]
	allowed = allowed && !(c.r.Method == http.MethodHead && rt.limit != nil) // it would do the work of a GET
	if !(rt.probe && h.options.OpenProbes) {
		var err error
		if c.grant, err = h.admit(c.r); err != nil {
			c.skipBody()
			return err
		}
		if err := h.origin.Check(c.r); err != nil {
			return &refusal{http.StatusForbidden, err.Error()}
		}
	}
	switch {
	case !known:
		return &refusal{http.StatusNotFound, "there is no such path: docs/admin.md lists all"}
	case !allowed:
		c.w.Header().Set("Allow", found.allow())
		return &refusal{http.StatusMethodNotAllowed, "the path has other methods: " + found.allow()}
	case !(rt.probe && h.options.OpenProbes) && !c.grant.Role.may(rt.role):
		return &refusal{http.StatusForbidden, fmt.Sprintf("it takes the role %s, and %s has the role %q", rt.role, c.grant.Name, c.grant.Role)}
	}
	if err := c.readQuery(rt.params); err != nil {
		return err
	}
	if rt.limit != nil {
		select {
		case rt.limit <- struct{}{}:
			defer func() { <-rt.limit }()
		default:
			c.w.Header().Set("Retry-After", "1")
			return &refusal{http.StatusServiceUnavailable, fmt.Sprintf("%d such requests run already", cap(rt.limit))}
		}
	}
	if !c.changes() {
		return rt.serve(c)
	}
	err := rt.serve(c)
	c.logChange(err)
	return err
}

// knows reports whether the Handler may be asked under a Host. A page of a stranger can have its
// own name resolve to this address, but it cannot make a browser send another name.
func (h *Handler) knows(host string) bool {
	name, port := host, ""
	if i := strings.LastIndexByte(host, ':'); i >= 0 && !strings.HasSuffix(host, "]") {
		name, port = host[:i], host[i+1:]
		if port == "" || strings.Trim(port, "0123456789") != "" {
			return false
		}
	}
	if inner, ok := strings.CutPrefix(name, "["); ok {
		inner, ok = strings.CutSuffix(inner, "]")
		ip, err := netip.ParseAddr(inner)
		return ok && err == nil && ip.Is6()
	}
	if ip, err := netip.ParseAddr(name); err == nil {
		return ip.Is4()
	}
	return h.hosts[strings.ToLower(name)]
}

// admit returns who sends a request.
func (h *Handler) admit(r *http.Request) (Grant, error) {
	g, err := h.authorize(r)
	switch {
	case err == nil:
		return g, nil
	case errors.Is(err, ErrUnauthorized):
		h.log.Debug("request not authorised", "client", r.RemoteAddr, "cause", err)
		return Grant{}, &refusal{http.StatusUnauthorized, err.Error()}
	}
	h.grumble(err)
	return Grant{}, &refusal{http.StatusServiceUnavailable, "nobody can be authorised at the moment: the log says why"}
}

// grumble logs that nobody can be authorised, once a minute at most.
func (h *Handler) grumble(err error) {
	last := <-h.grumbles
	now := time.Now()
	if now.Sub(last) >= time.Minute {
		h.log.Warn("requests cannot be authorised", "cause", err)
		last = now
	}
	h.grumbles <- last
}
