package admin

import (
	"io/fs"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/gateway"
)

// fields is the answer of a command, in ZooKeeper's names.
type fields map[string]any

// A command is one of ZooKeeper's AdminServer.
type command struct {
	name    string
	aliases []string
	run     func(v *zkView) (fields, error)
}

// commands are those that can be answered here. What changes something is not among them: in
// ZooKeeper a GET does that.
var commands = []command{
	{"configuration", []string{"conf", "config"}, (*zkView).configuration},
	{"connections", []string{"cons"}, (*zkView).connections},
	{"dirs", nil, (*zkView).dirs},
	{"dump", nil, (*zkView).dump},
	{"environment", []string{"env", "envi"}, (*zkView).environment},
	{"get_trace_mask", []string{"gtmk"}, func(*zkView) (fields, error) { return fields{"tracemask": 306}, nil }},
	{"is_read_only", []string{"isro"}, (*zkView).isReadOnly},
	{"leader", []string{"lead"}, (*zkView).leader},
	{"monitor", []string{"mntr"}, (*zkView).monitor},
	{"ruok", nil, func(*zkView) (fields, error) { return fields{}, nil }},
	{"server_stats", []string{"srvr"}, (*zkView).serverStats},
	{"stats", []string{"stat"}, (*zkView).stats},
	{"voting_view", nil, (*zkView).votingView},
	{"watch_summary", []string{"wchs"}, (*zkView).watchSummary},
	{"watches", []string{"wchc"}, (*zkView).watches},
	{"watches_by_path", []string{"wchp"}, (*zkView).watchesByPath},
}

// commandRoutes adds the commands to the routes.
func commandRoutes(to map[string]methods) {
	for _, cmd := range commands {
		serve := func(c *call) error { return c.command(cmd) }
		for _, name := range append([]string{cmd.name}, cmd.aliases...) {
			to["/commands/"+name] = methods{http.MethodGet: {role: Viewer, serve: serve}}
		}
	}
	to["/commands"] = methods{http.MethodGet: {role: Viewer, serve: (*call).listCommands}}
}

// listCommands lists the names of the commands.
func (c *call) listCommands() error {
	var names []string
	for _, cmd := range commands {
		names = append(names, cmd.name)
	}
	return c.text(http.StatusOK, strings.Join(names, "\n"))
}

// command answers a command. As in ZooKeeper, a command that fails has the status 200, and says why
// in error.
func (c *call) command(cmd command) error {
	v := &zkView{c: c, status: c.h.node.Status()}
	for i, g := range c.h.options.Gateways {
		r := g.Report()
		if i == 0 {
			v.mntr = r.Monitor
		}
		v.conns = append(v.conns, r.Connections...)
	}
	answer, err := cmd.run(v)
	if err != nil {
		answer = fields{"error": err.Error()}
	} else if answer["error"] == nil {
		answer["error"] = nil
	}
	answer["command"] = cmd.name
	return c.answer(http.StatusOK, answer)
}

// A zkView is what the commands are answered from.
type zkView struct {
	c      *call
	status embed.Status
	mntr   map[string]any // of the first gateway; nil: there is none
	conns  []gateway.Connection
}

// zxid returns the newest zxid that reads show; of several shards, which do not compare, the
// largest.
func (v *zkView) zxid() embed.Zxid { return v.c.h.parts.Engine.Tables.Visible() }

func (v *zkView) leader() (fields, error) {
	if v.c.h.parts.Config.Alone || len(v.status.Shards) == 0 {
		return fields{"error": "server is not initialized"}, nil // a lone server of ZooKeeper says so too
	}
	shard := v.status.Shards[0]
	f := fields{"is_leader": v.status.Leading(shard), "leader_id": shard.Leader, "leader_ip": ""}
	for _, m := range v.c.h.node.Members() {
		if m.ID == shard.Leader {
			f["leader_ip"], _, _ = net.SplitHostPort(m.Address)
		}
	}
	return f, nil
}

func (v *zkView) isReadOnly() (fields, error) { return fields{"read_only": v.readOnly()}, nil }

// readOnly reports whether the first gateway is in its read-only mode.
func (v *zkView) readOnly() bool { return v.mntr["server_state"] == "read-only" }

// value returns a value of mntr, or zero.
func (v *zkView) value(key string) any {
	if x := v.mntr[key]; x != nil {
		return x
	}
	return 0
}

func (v *zkView) serverStats() (fields, error) {
	size := v.size()
	stats := fields{"data_dir_size": size, "log_dir_size": size, "last_processed_zxid": uint64(v.zxid()), "fsync_threshold_exceed_count": 0,
		"provider_null": false, "num_alive_client_connections": len(v.conns), "non_mtlsremote_conn_count": 0, "non_mtlslocal_conn_count": 0,
		"client_response_stats": noResponses}
	for _, key := range []string{"packets_sent", "packets_received", "server_state", "outstanding_requests", "avg_latency", "max_latency",
		"min_latency", "uptime", "auth_failed_count"} {
		stats[key] = v.value(key)
	}
	return fields{"version": v.value("version"), "read_only": v.readOnly(), "server_stats": stats, "client_response": noResponses,
		"node_count": v.c.h.parts.Engine.Tables.Znodes() + 1}, nil // the root counts twice, as in ZooKeeper
}

// dirs has the size of the node's directory twice: image and log share it.
func (v *zkView) dirs() (fields, error) {
	size := v.size()
	return fields{"datadir_size": size, "logdir_size": size}, nil
}

// noResponses says, as ZooKeeper does before the first answer, that sizes of answers are not known.
var noResponses = fields{"last_buffer_size": -1, "min_buffer_size": -1, "max_buffer_size": -1}

func (v *zkView) stats() (fields, error) {
	f, err := v.serverStats()
	f["connections"], f["secure_connections"] = v.listed(false), []fields{}
	return f, err
}

func (v *zkView) connections() (fields, error) {
	return fields{"connections": v.listed(true), "secure_connections": []fields{}}, nil
}

func (v *zkView) listed(all bool) []fields {
	list := []fields{}
	for _, c := range v.conns {
		f := fields{"remote_socket_address": c.Client, "interest_ops": 1, "outstanding_requests": c.Outstanding,
			"packets_received": c.Received, "packets_sent": c.Sent}
		if all {
			maps.Copy(f, fields{"session_id": int64(c.Session), "last_operation": c.LastOperation, "established": c.Established.UnixMilli(),
				"session_timeout": c.Timeout.Milliseconds(), "last_cxid": c.LastCxid, "last_zxid": uint64(c.LastZxid),
				"last_response_time": c.LastAnswer.UnixMilli(), "last_latency": c.LastLatency.Milliseconds(),
				"min_latency": c.LeastLatency, "avg_latency": c.MeanLatency, "max_latency": c.MostLatency})
		}
		list = append(list, f)
	}
	return list
}

// dump lists the sessions that own ephemerals. When a session would expire is not known here.
func (v *zkView) dump() (fields, error) {
	census, err := v.c.h.parts.Engine.Tables.Census(v.c.r.Context())
	owned := fields{}
	for _, s := range census.Sessions {
		if len(s.Ephemerals) > 0 {
			owned[decimalID(s.ID)] = s.Ephemerals
		}
	}
	return fields{"expiry_time_to_session_ids": fields{}, "session_id_to_ephemeral_paths": owned}, err
}

func decimalID(id embed.SessionID) string { return strconv.FormatInt(int64(id), 10) }

func (v *zkView) watches() (fields, error) {
	sessions := fields{}
	for _, c := range v.conns {
		if len(c.Watched) > 0 {
			sessions[decimalID(c.Session)] = c.Watched
		}
	}
	return fields{"session_id_to_watched_paths": sessions}, nil
}

// byPath returns the sessions that watch each path.
func (v *zkView) byPath() map[string][]int64 {
	paths := make(map[string][]int64)
	for _, c := range v.conns {
		for _, path := range c.Watched {
			paths[path] = append(paths[path], int64(c.Session))
		}
	}
	return paths
}

func (v *zkView) watchesByPath() (fields, error) {
	return fields{"path_to_session_ids": v.byPath()}, nil
}

func (v *zkView) watchSummary() (fields, error) {
	watching, total := 0, 0
	for _, c := range v.conns {
		if total += len(c.Watched); len(c.Watched) > 0 {
			watching++
		}
	}
	return fields{"num_connections": watching, "num_paths": len(v.byPath()), "num_total_watches": total}, nil
}

func (v *zkView) monitor() (fields, error) {
	f := fields{}
	maps.Copy(f, v.mntr)
	return f, nil
}

func (v *zkView) configuration() (fields, error) {
	cfg := &v.c.h.parts.Config
	f := fields{"client_port": -1, "data_dir": cfg.Dir, "data_log_dir": cfg.Dir, "tick_time": cfg.Tick.Milliseconds(), "max_client_cnxns": 0,
		"min_session_timeout": cfg.MinSessionTimeout.Milliseconds(), "max_session_timeout": cfg.MaxSessionTimeout.Milliseconds(),
		"server_id": v.status.Member, "client_port_listen_backlog": -1}
	if all := v.c.h.options.Gateways; len(all) > 0 {
		address := all[0].Addr().String()
		f["client_port"], _ = strconv.Atoi(address[strings.LastIndexByte(address, ':')+1:])
	}
	return f, nil
}

func (v *zkView) environment() (fields, error) {
	host, _ := os.Hostname()
	return fields{"zookeeper.version": v.value("version"), "host.name": host, "go.version": runtime.Version(), "os.name": runtime.GOOS, "os.arch": runtime.GOARCH}, nil
}

// votingView lists the members that vote.
func (v *zkView) votingView() (fields, error) {
	voters := fields{}
	for _, m := range v.c.h.node.Members() {
		if m.Role == embed.Voter && m.Address != "" {
			voters[strconv.FormatUint(uint64(m.ID), 10)] = fields{"server_addresses": []string{m.Address}, "election_addresses": []string{m.Address},
				"client_address": m.Client, "learner_type": "PARTICIPANT"}
		}
	}
	return fields{"current_config": voters}, nil
}

// size returns the bytes of the node's directory. Files that vanish meanwhile do not count.
func (v *zkView) size() (n int64) {
	_ = filepath.WalkDir(v.c.h.parts.Config.Dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil
		}
		if info, err := d.Info(); err == nil {
			n += info.Size()
		}
		return nil
	})
	return n
}
