package session

import (
	"fmt"
	"strconv"
	"strings"
)

// homeShard is the shard that has the sessions, and whose parts Configuration shows.
const homeShard = 1

// Configuration returns the members as ZooKeeper's dynamic configuration lists them, sorted by id:
//
//	server.1=10.0.0.1:7946:0:participant;10.0.0.1:2181
//	server.4=10.0.0.4:7946:0:observer
//
// Each line has a member that takes part in the home shard. A voter is a participant, a learner an
// observer. A member has one port for other members, and ZooKeeper's format has two: the second is
// 0, because ZooKeeper's clients refuse two equal ones. The part behind the semicolon is for
// clients, who connect to whatever stands there. It is missing if the member announced nothing.
//
// Configuration is empty until the address of each of these members is known. An incomplete list
// would tell clients that the others are gone.
func (v *MembersView) Configuration() string {
	var b strings.Builder
	for i := range v.List {
		m := &v.List[i]
		role := m.configuredRole()
		if role == "" {
			continue
		}
		address, ok := parseAddress(m.Address)
		if !ok {
			return ""
		}
		fmt.Fprintf(&b, "server.%d=%s:0:%s", m.ID, address, role)
		if client, ok := parseAddress(m.Client); ok {
			b.WriteString(";" + client)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// configuredRole returns ZooKeeper's word for a member's part in the home shard, or "" if it has
// none.
func (m *Member) configuredRole() string {
	switch {
	case m.Votes(homeShard):
		return "participant"
	case m.place(homeShard).Part == Learner:
		return "observer"
	}
	return ""
}

// IsAddress reports whether an address can stand in a Configuration.
func IsAddress(s string) bool {
	_, ok := parseAddress(s)
	return ok
}

// parseAddress returns an address if it can stand in a Configuration: a host name or IP address,
// and a number as the port. Whatever else a member says of itself must not become lines of its own.
//
// Package net has such a parser, but a later Go may parse otherwise, and all replicas must judge
// alike.
func parseAddress(s string) (string, bool) {
	colon := strings.LastIndexByte(s, ':')
	if colon < 0 {
		return "", false
	}
	host, isIP6 := strings.CutPrefix(s[:colon], "[")
	if isIP6 {
		if host, isIP6 = strings.CutSuffix(host, "]"); !isIP6 {
			return "", false
		}
	}
	for i := 0; i < len(host); i++ {
		c := host[i]
		isHex := c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'f'
		inName := c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'z' || c == '.' || c == '-' || c == '_'
		if isIP6 && !isHex && c != ':' && c != '.' || !isIP6 && !inName {
			return "", false
		}
	}
	port, err := strconv.ParseUint(s[colon+1:], 10, 16)
	if err != nil || port == 0 || host == "" {
		return "", false
	}
	return fmt.Sprintf("%s:%d", s[:colon], port), true
}
