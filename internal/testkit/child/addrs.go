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

// ports are those that FreeAddrs has given out, and where it goes on looking; other processes begin elsewhere.
var ports = struct {
	sync.Mutex
	next int
	held []net.PacketConn
}{next: os.Getpid() * 16}

// FreeAddrs returns addresses on loopback at which nobody listens, for n processes. They are given to nobody else while this
// process lives: it holds the UDP port of each one's number, and whoever asks here passes over those that are held.
func FreeAddrs(n int) (addrs []string, err error) {
	ports.Lock()
	defer ports.Unlock()
	for range portHigh - portLow {
		addr := fmt.Sprintf("127.0.0.1:%d", portLow+ports.next%(portHigh-portLow))
		ports.next++
		hold, err := net.ListenPacket("udp", addr)
		if err != nil {
			continue
		}
		l, err := net.Listen("tcp", addr)
		if err != nil {
			_ = hold.Close()
			continue
		}
		_ = l.Close()
		ports.held = append(ports.held, hold)
		if addrs = append(addrs, addr); len(addrs) == n {
			return addrs, nil
		}
	}
	return nil, fmt.Errorf("there are no %d free ports from %d to %d", n, portLow, portHigh-1)
}
