package client

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
)

const defaultPort = "2181"

// ParseServers parses the address of an ensemble as ZooKeeper's clients write it, such as
// "a:2181,b:2181/app": servers, and the path that the client uses as its root. Without a path,
// chroot is "". Without a port, the port is 2181.
func ParseServers(text string) (servers []string, chroot string, err error) {
	hosts := text
	if i := strings.IndexByte(text, '/'); i >= 0 {
		hosts, chroot = text[:i], text[i:]
		if err := CheckPath(chroot); err != nil {
			return nil, "", fmt.Errorf("server %q: %w", text, err)
		}
		if chroot == "/" {
			chroot = ""
		}
	}
	for _, h := range strings.Split(hosts, ",") {
		if h = strings.TrimSpace(h); h == "" {
			continue
		}
		addr, err := address(h)
		if err != nil {
			return nil, "", fmt.Errorf("server %q: %w", h, err)
		}
		servers = append(servers, addr)
	}
	if servers == nil {
		return nil, "", fmt.Errorf("server %q: no host", text)
	}
	return servers, chroot, nil
}

func address(h string) (string, error) {
	host, port := h, defaultPort
	if h[0] == '[' && h[len(h)-1] != ']' || h[0] != '[' && strings.Count(h, ":") == 1 { // otherwise it is a name or an IPv6 address, without a port
		var err error
		if host, port, err = net.SplitHostPort(h); err != nil {
			return "", err
		}
	}
	host = strings.Trim(host, "[]")
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 || host == "" {
		return "", errors.New("want host:port")
	}
	return net.JoinHostPort(host, port), nil
}
