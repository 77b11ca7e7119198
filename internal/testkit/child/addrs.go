package child

import (
	"fmt"
	"net"
	"os"
	"sync"
)

// The ports of FreeAddrs lie below those that systems give to outgoing connections. A process that
// is dead for a while could lose such a port to another process's dial.
const portLow, portHigh = 12000, 30000

// ports has the ports that FreeAddrs has given out, and where it looks next. Other processes begin
// elsewhere.
var ports = struct {
	sync.Mutex
	next int
	held []net.PacketConn
}{next: os.Getpid() * 16}

// FreeAddrs returns addresses on loopback for n processes. Nobody listens there, and no other call
// of FreeAddrs returns them while this process lives. To reserve a port, this process holds the UDP
// port of the same number; FreeAddrs skips ports whose UDP port is held.
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
