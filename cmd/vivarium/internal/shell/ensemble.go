package shell

import (
	"context"
	"os"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/vivarium-go/vivarium/internal/wire"
)

const reconfigUsage = "[-s] [-v version] [[-file path] | [-members serverID=host:port1:port2;port3[,...]*]] | " +
	"[-add serverId=host:port1:port2;port3[,...]]* [-remove serverId[,...]*]"

// config prints the ensemble's members, as the server knows them.
func (s *shell) config(ctx context.Context, a *args) error {
	o := at(wire.OpGetData, "/zookeeper/config")
	o.Watch = a.has("w")
	r, err := s.call(ctx, o)
	if err != nil {
		return err
	}
	data := text(r.Data)
	if a.has("c") {
		data = addresses(data)
	}
	s.println(data)
	if a.has("s") {
		s.stat(&r.Stat)
	}
	return nil
}

// addresses returns the version of a config and the addresses for clients.
func addresses(config string) string {
	version, list := "", []string{}
	for line := range strings.Lines(config) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch {
		case key == "version":
			version = value
		case strings.HasPrefix(key, "server."):
			if _, at, ok := strings.Cut(value, ";"); ok {
				at, _, _ = strings.Cut(at, ";")
				if !strings.Contains(at, ":") {
					at = "0.0.0.0:" + at
				}
				list = append(list, at)
			}
		}
	}
	return version + " " + strings.Join(list, ",")
}

func (s *shell) reconfig(ctx context.Context, a *args) error {
	whole, parts := a.has("file") || a.has("members"), a.has("add") || a.has("remove")
	switch {
	case !whole && !parts:
		return usage("reconfig %s", reconfigUsage)
	case whole && parts:
		return usage("Can't use -file or -members together with -add or -remove (mixing incremental and non-incremental modes is not allowed)")
	case a.has("file") && a.has("members"):
		return usage("Can't use -file and -members together (conflicting non-incremental modes)")
	}
	q := wire.Request{Reconfig: wire.Reconfig{Joining: wire.Null, Leaving: wire.Null, Members: wire.Null, ConfigID: -1}}
	q.Op = wire.OpReconfig
	if a.has("v") {
		v, err := strconv.ParseInt(a.value("v"), 16, 64)
		if err != nil {
			return usage("-v must be followed by a long (configuration version)")
		}
		q.Reconfig.ConfigID = v
	}
	for _, f := range []struct {
		flag string
		to   *string
	}{{"add", &q.Reconfig.Joining}, {"remove", &q.Reconfig.Leaving}, {"members", &q.Reconfig.Members}} {
		if a.has(f.flag) {
			*f.to = strings.ToLower(strings.Join(a.flags[f.flag], ","))
		}
	}
	if a.has("file") {
		b, err := os.ReadFile(a.value("file"))
		if err != nil {
			return usage("Error processing %s: %v", a.value("file"), err)
		}
		q.Reconfig.Members = string(b)
	}
	r, err := s.request(ctx, q)
	if err != nil {
		return err
	}
	s.println("Committed new configuration:\n" + text(r.Data))
	if a.has("s") {
		s.stat(&r.Stat)
	}
	return nil
}

func (s *shell) version(_ context.Context, a *args) error {
	if len(a.words) > 1 {
		return usage("version ")
	}
	version := "(devel)"
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		version = info.Main.Version
	}
	s.println("ZooKeeper CLI version: vivarium " + version)
	return nil
}
