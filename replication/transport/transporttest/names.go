package transporttest

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
)

// Names of members in a mesh. Every port will do.
const (
	nameStart = "member-"
	nameEnd   = ".test"
	allNames  = "members.test" // stands for all members that listen
)

// membersEnd is beyond the ids of members. A test may let something else listen by a higher id,
// which no name stands for.
const membersEnd = 1 << 63

// memberAt returns the member whose name is in an address; zero if it is no name of a member.
func memberAt(address string) uint64 {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return 0
	}
	id, ok := strings.CutPrefix(host, nameStart)
	if !ok {
		return 0
	}
	if id, ok = strings.CutSuffix(id, nameEnd); !ok {
		return 0
	}
	member, err := strconv.ParseUint(id, 10, 63)
	if err != nil {
		return 0
	}
	return member
}

// memberOf returns who listens where a dial goes; zero if nobody knows. An address with a name
// counts more than who is expected there: a new member may be there by now.
func memberOf(to Target) uint64 {
	if m := memberAt(to.Address); m != 0 {
		return m
	}
	return to.Member
}

// Resolve returns all members that listen now for the name members.test. Every other name stands
// for itself.
func (n meshNetwork) Resolve(ctx context.Context, address string) ([]Target, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if host != allNames {
		return []Target{{Address: address, Host: host}}, nil
	}
	var list []Target
	for _, id := range n.mesh.listening() {
		list = append(list, Target{Address: fmt.Sprint(nameStart, id, nameEnd, ":", port), Host: host})
	}
	return list, nil
}

// listening returns the members that listen, in the order of their ids.
func (m *Mesh) listening() []uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := slices.Sorted(maps.Keys(m.mu.listeners))
	end, _ := slices.BinarySearch(all, membersEnd)
	return all[:end]
}
