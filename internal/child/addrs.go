package child

import (
	"fmt"
	"net"
	"os"
	"sync"
)

// The ports of FreeAddrs lie below those that systems give to outgoing connections: a process that is dead for a while would
// lose one of those to somebody's dial.
const portLow, portHigh = 12000, 30000

// ports is where FreeAddrs goes on looking, so that those who ask share no port; other processes begin elsewhere.
var ports = struct {
	sync.Mutex
	next int
}{next: os.Getpid() * 16}

// FreeAddrs returns addresses on loopback at which nobody listens, for n processes.
func FreeAddrs(n int) (addrs []string, err error) {
	ports.Lock()
	defer ports.Unlock()
	for range portHigh - portLow {
		addr := fmt.Sprintf("127.0.0.1:%d", portLow+ports.next%(portHigh-portLow))
		ports.next++
		l, err := net.Listen("tcp", addr)
		if err != nil {
			continue
		}
		_ = l.Close()
		if addrs = append(addrs, addr); len(addrs) == n {
			return addrs, nil
		}
	}
	return nil, fmt.Errorf("there are no %d free ports from %d to %d", n, portLow, portHigh-1)
}
