// Package loopback starts three members in one process, for examples. A service has one member in
// each of its processes, with addresses that stay.
package loopback

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

// Start starts three members on free loopback ports. If another program takes one of the ports
// meanwhile, Start tries others. end closes the members and removes what they have written.
func Start(name string) (nodes map[embed.MemberID]*embed.Node, end func(), err error) {
	dir, err := os.MkdirTemp("", "vivarium-"+name+"-")
	if err != nil {
		return nil, nil, err
	}
	end = func() {
		for _, node := range nodes {
			_ = node.Close() // nobody needs it any more
		}
		_ = os.RemoveAll(dir)
	}
	for try := 0; ; try++ {
		nodes, err = start(filepath.Join(dir, strconv.Itoa(try)), name)
		if err == nil {
			return nodes, end, nil
		}
		if !errors.Is(err, syscall.EADDRINUSE) || try == 10 {
			end()
			return nil, nil, err
		}
	}
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
			Ensemble: name + "-" + strconv.Itoa(os.Getpid()), Logger: slog.New(slog.DiscardHandler),
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
