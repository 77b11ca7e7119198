package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/engine"
	"github.com/vivarium-go/vivarium/internal/wire"
	"github.com/vivarium-go/vivarium/tree"
)

// reconfigTime bounds how long a reconfig may take. A voter that goes waits up to ten seconds, with
// the default tick, for the one that takes its place. If the time is not enough, the connection
// ends, because nobody knows the outcome yet.
const reconfigTime = 30 * time.Second

// youngTime is how long a reconfig waits in an ensemble that was founded just now.
const youngTime = 10 * time.Second

// serversMax bounds the servers that a reconfig names.
const serversMax = 1000

// errServers is about a reconfig whose servers cannot be had here.
var errServers = errors.New("not possible here")

func badServers(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errServers, fmt.Sprintf(format, args...))
}

// reconfig changes the members, and answers with the config that has the change.
func (c *conn) reconfig(q *wire.Request, a *answer) error {
	if !c.awaitPlaced() {
		return errEnded
	}
	if !c.gate.cfg.Reconfig {
		return c.finish(a, errReconfigDisabled)
	}
	if err := c.changeMembers(&q.Reconfig); err != nil {
		c.logChange(err)
		return c.finish(a, err)
	}
	return c.answerRead(a, func(from source) error {
		data, stat, err := from.Get(tree.ConfigPath)
		a.reply.Data, a.reply.Stat = data, statOf(&stat)
		return err
	})
}

// changeMembers makes the checks in ZooKeeper's order, except that permission comes first. What can be
// told at once comes before what takes time.
func (c *conn) changeMembers(r *wire.Reconfig) error {
	ctx, cancel := context.WithTimeout(c.gate.ctx, reconfigTime)
	defer cancel()
	if _, err := c.writes.Sync(ctx, tree.ConfigPath); err != nil {
		return err
	}
	if err := c.gate.node.Engine.MayReconfig(c.identities); err != nil {
		return err
	}
	_, _, err := c.configFor(r)
	if err == nil {
		_, err = parseWanted(r)
	}
	if err == nil {
		err = c.awaitConfig(ctx)
	}
	if err != nil {
		return err
	}
	config, version, err := c.configFor(r)
	if err != nil {
		return err
	}
	change, err := planReconfig(config, r)
	if err != nil || len(change.Promote)+len(change.Remove) == 0 {
		return err
	}
	if r.ConfigID != -1 {
		change.Version = version
	}
	return c.gate.node.Engine.Petitioner.Reconfig(ctx, change)
}

// configFor returns the config and its version, or ErrBadVersion if the request is for another one.
func (c *conn) configFor(r *wire.Reconfig) (config string, version tree.Zxid, err error) {
	data, stat, err := c.session.Get(tree.ConfigPath)
	if err == nil && r.ConfigID != -1 && r.ConfigID != int64(stat.Mzxid) {
		err = tree.ErrBadVersion
	}
	return string(data), stat.Mzxid, err
}

// awaitConfig waits until all members of a young ensemble have said where they are.
func (c *conn) awaitConfig(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, youngTime)
	defer cancel()
	tick := time.NewTicker(c.gate.node.Config.Tick)
	defer tick.Stop()
	for c.gate.node.Engine.Config() == "" {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%w: not all members have said yet where they are", engine.ErrReconfiguring)
		}
	}
	return nil
}

// A server is a line of a config.
type server struct {
	id      uint64
	address string // host:port:port
	votes   bool
	client  string // host:port; the host is empty if the line has only a port; empty if it has none
}

// wanted is what a request asks for.
type wanted struct {
	servers []server        // that are to be there
	leaves  map[uint64]bool // ids of those that are to leave
	only    bool            // all others are to leave
}

// parseWanted reads the strings of a request.
func parseWanted(r *wire.Reconfig) (w wanted, err error) {
	if r.Members != wire.Null {
		w.only = true
		w.servers, err = parseServers(strings.ReplaceAll(r.Members, ",", "\n"))
		return w, err
	}
	if w.leaves, err = parseLeaving(r.Leaving); err == nil {
		w.servers, err = parseJoining(r.Joining)
	}
	return w, err
}

// planReconfig returns the change that makes the servers of a config those of a request.
func planReconfig(config string, r *wire.Reconfig) (c engine.Reconfig, err error) {
	now, err := parseServers(config)
	if err != nil {
		return c, err
	}
	wanted, err := parseWanted(r)
	if err != nil {
		return c, err
	}
	leaves := wanted.leaves
	if wanted.only {
		leaves = make(map[uint64]bool)
		for _, s := range now {
			leaves[s.id] = true
		}
	}
	joins := make(map[uint64]server)
	for _, s := range wanted.servers {
		joins[s.id] = s
		delete(leaves, s.id)
	}
	voters := 0
	for _, s := range now {
		w, isNamed := joins[s.id]
		delete(joins, s.id)
		switch {
		case leaves[s.id]:
			c.Remove = append(c.Remove, embed.MemberID(s.id))
			continue
		case !isNamed:
		case !s.isAt(&w):
			return c, badServers("server %d is at %s;%s: only the member itself changes where it is", s.id, s.address, s.client)
		case s.votes && !w.votes:
			return c, badServers("server %d votes: a voter does not become an observer, it can only leave", s.id)
		case w.votes && !s.votes:
			c.Promote = append(c.Promote, embed.MemberID(s.id))
			s.votes = true
		}
		if s.votes {
			voters++
		}
	}
	for id := range joins {
		return c, badServers("server %d is no member: a member joins by itself, when it starts", id)
	}
	if voters == 0 {
		return c, badServers("no participant would be left")
	}
	return c, nil
}

// isAt reports whether a line of a request names the addresses of a server. It may leave out the
// client's part, or name the client's port alone.
func (s *server) isAt(w *server) bool {
	if !sameAddress(s.address, w.address) {
		return false
	}
	host, port := splitHost(w.client)
	_, own := splitHost(s.client)
	isAny := host == "" || host == "0.0.0.0" || host == "[::]"
	return w.client == "" || s.client != "" && (isAny && port == own || sameAddress(s.client, w.client))
}

// sameAddress reports whether two addresses are the same. Java writes the addresses of IPv6 in
// full.
func sameAddress(a, b string) bool {
	hostA, portA := splitHost(a)
	hostB, portB := splitHost(b)
	ipA, errA := netip.ParseAddr(strings.Trim(hostA, "[]"))
	ipB, errB := netip.ParseAddr(strings.Trim(hostB, "[]"))
	same := errA == nil && errB == nil && ipA == ipB
	return portA == portB && (same || strings.EqualFold(hostA, hostB))
}

// splitHost splits an address behind its host, which may be in brackets.
func splitHost(address string) (host, rest string) {
	i := strings.IndexByte(address, ']') + 1
	colon := strings.IndexByte(address[i:], ':')
	if colon < 0 {
		return address, ""
	}
	return address[:i+colon], address[i+colon+1:]
}

// parseServers reads the lines of a whole config.
func parseServers(config string) (list []server, err error) {
	for line := range strings.Lines(config) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' || line[0] == '!' {
			continue
		}
		key, spec, _ := strings.Cut(line, "=")
		if key = strings.TrimSpace(key); key == "version" {
			continue // the request has a field for it
		}
		if !strings.HasPrefix(key, "server.") {
			return nil, badServers("%.40q is no line of a server: there are no groups and no weights", line)
		}
		if list, err = appendServer(list, key, spec); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// parseJoining reads the servers that are to join: server.1=spec,2=spec.
func parseJoining(joining string) (list []server, err error) {
	for _, one := range fields(joining) {
		key, spec, found := strings.Cut(one, "=")
		if !found || strings.Contains(spec, "=") {
			return nil, badServers("%.40q is not of the form server.1=host:port:port", one)
		}
		if list, err = appendServer(list, key, spec); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// parseLeaving reads the ids of servers that are to leave. Those that are no members do not matter.
func parseLeaving(leaving string) (map[uint64]bool, error) {
	leaves := make(map[uint64]bool)
	for _, one := range fields(leaving) {
		id, err := parseID(one)
		if err != nil {
			return nil, err
		}
		leaves[id] = true
	}
	return leaves, nil
}

// fields splits a list at its commas, without what is empty.
func fields(list string) (all []string) {
	if list == wire.Null {
		return nil
	}
	for one := range strings.SplitSeq(list, ",") {
		if one = strings.TrimSpace(one); one != "" {
			all = append(all, one)
		}
	}
	return all
}

// parseID reads a server's id. In ZooKeeper, one that is no number makes the request malformed.
func parseID(s string) (uint64, error) {
	id, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0, errMarshalling
	}
	return uint64(id), nil
}

// appendServer reads one server. The key may be its id alone.
func appendServer(list []server, key, spec string) ([]server, error) {
	if len(list) == serversMax {
		return nil, badServers("more than %d servers", serversMax)
	}
	key = strings.TrimSpace(key)
	id, err := parseID(key[strings.LastIndexByte(key, '.')+1:])
	if err != nil {
		return nil, err
	}
	main, client, _ := strings.Cut(strings.TrimSpace(spec), ";")
	host, rest := splitHost(main)
	parts := strings.Split(rest, ":")
	role := "participant"
	if len(parts) == 3 && parts[2] != "" {
		role = strings.ToLower(strings.TrimSpace(parts[2]))
	}
	clientHost, port := splitHost(client)
	if port == "" {
		clientHost, port = "", client // it has only a port
	}
	switch {
	case host == "", len(parts) < 2, len(parts) > 3, !isPort(parts[0]), !isPort(parts[1]), client != "" && !isPort(port), role != "participant" && role != "observer":
		return nil, badServers("%.100q is not of the form host:port:port:participant or host:port:port:observer, with ;host:port behind it for clients", spec)
	case client != "":
		client = clientHost + ":" + port
	}
	return append(list, server{id: id, address: host + ":" + parts[0] + ":" + parts[1], votes: role == "participant", client: client}), nil
}

func isPort(s string) bool {
	_, err := strconv.ParseUint(s, 10, 16)
	return err == nil
}
