package crowd

import (
	"net"
	"net/netip"
	"sync/atomic"
)

// Of returns who counts as one behind an address: its host, or its network of 64 bits if it is of
// IPv6, because whoever has one address there has all.
func Of(addr net.Addr) string {
	host, _, err := net.SplitHostPort(addr.String())
	if err != nil {
		return addr.String()
	}
	a, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	if a = a.Unmap(); a.Is6() {
		network, _ := a.WithZone("").Prefix(64)
		return network.String()
	}
	return a.String()
}

// Greediest returns the index of the first of those who have most, and how many these have; -1 of
// nobody. A newcomer is among them, as the last: else one who comes again and again takes the places
// of those who have one each.
func Greediest(who []string) (first, most int) {
	held := make(map[string]int)
	for _, w := range who {
		held[w]++
		most = max(most, held[w])
	}
	for i, w := range who {
		if held[w] == most {
			return i, most
		}
	}
	return -1, 0
}

// What a node needs besides the connections that it accepts, in descriptors: log, image, links to
// the other members, handshakes with them, and the admin port.
const (
	nodeFiles  = 384
	shardFiles = 96 // the image's tables and logs
)

// Lacks reports whether a process may open fewer files than a node with some shards needs besides
// the quarter that is for connections, and how many either is.
func Lacks(shards int) (files, want int, lacks bool) {
	files, want = openMax(), nodeFiles+shards*shardFiles
	return files, want, files > 0 && files-files/4 < want
}

// Fits returns how many of the connections that a bound allows a process can serve beside a node
// with some shards, and how many files it may open. A bound below zero is none. At least a
// quarter of the files is for connections. Where the number of files is not known, it is zero, and the bound
// stays.
func Fits(bound, shards int) (connections, files int) {
	if files = openMax(); files <= 0 {
		return bound, 0
	}
	room := max(files-nodeFiles-shards*shardFiles, files/4)
	if bound < 0 || bound > room {
		return room, files
	}
	return bound, files
}

// served counts the connections of all servers of this process that share what Fits leaves them.
var served atomic.Int64

// Enter counts n more connections of this process. It reports whether it can serve them beside a node
// with some shards, and counts them also if not; Leave takes them back.
func Enter(n, shards int) bool {
	all := served.Add(int64(n))
	room, files := Fits(-1, shards)
	return files == 0 || all <= int64(room)
}

// Leave takes n connections back that Enter has counted.
func Leave(n int) { served.Add(-int64(n)) }
