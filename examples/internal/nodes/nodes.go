// Package nodes starts the nodes of examples.
//
// A service starts one node in each of its processes. Its directories and addresses stay; see
// examples/quickstart for a single node, and examples/cluster for three processes. The other
// examples put all nodes into one process, on free ports and in a directory that they remove.
package nodes

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/vivarium-go/vivarium/embed"
)

// One starts a node that is an ensemble by itself. end closes it and removes what it has written.
func One(name string) (node *embed.Node, end func(), err error) {
	dir, err := os.MkdirTemp("", "vivarium-"+name+"-")
	if err != nil {
		return nil, nil, err
	}
	node, err = embed.Start(embed.Config{Dir: dir, Logger: quiet})
	if err != nil {
		_ = os.RemoveAll(dir)
		return nil, nil, err
	}
	return node, func() { closeAll(dir, node) }, nil
}

// Three starts an ensemble of three members on free loopback ports. If another program takes one of
// the ports meanwhile, Three tries others. end closes the members and removes what they have
// written.
func Three(name string) (members map[embed.MemberID]*embed.Node, end func(), err error) {
	dir, err := os.MkdirTemp("", "vivarium-"+name+"-")
	if err != nil {
		return nil, nil, err
	}
	for try := 0; ; try++ {
		members, err = start(filepath.Join(dir, strconv.Itoa(try)), name)
		if err == nil {
			return members, func() { closeAll(dir, members[1], members[2], members[3]) }, nil
		}
		if !errors.Is(err, syscall.EADDRINUSE) || try == 10 {
			closeAll(dir)
			return nil, nil, err
		}
	}
}

var quiet = slog.New(slog.DiscardHandler)

func closeAll(dir string, nodes ...*embed.Node) {
	for _, node := range nodes {
		_ = node.Close() // nobody needs it any more
	}
	_ = os.RemoveAll(dir)
}

func start(dir, name string) (map[embed.MemberID]*embed.Node, error) {
	addrs, err := freeAddrs(3)
	if err != nil {
		return nil, err
	}
	nodes := make(map[embed.MemberID]*embed.Node)
	for id := range addrs {
		node, err := embed.Start(embed.Config{
			Dir: filepath.Join(dir, fmt.Sprint("member-", id)), ID: id, Members: addrs,
			// Members of another run that gets one of these ports must not talk to these.
			Ensemble: name + "-" + strconv.Itoa(os.Getpid()), Logger: quiet,
		})
		if err != nil {
			for _, node := range nodes {
				_ = node.Close()
			}
			return nil, err
		}
		nodes[id] = node
	}
	return nodes, nil
}

func freeAddrs(n int) (map[embed.MemberID]string, error) {
	addrs := make(map[embed.MemberID]string)
	for id := embed.MemberID(1); int(id) <= n; id++ {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close() // only at the end, so that no port is chosen twice
		addrs[id] = l.Addr().String()
	}
	return addrs, nil
}
