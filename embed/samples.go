package embed

import (
	"iter"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync"

	"github.com/vivarium-go/vivarium/embed/internal/sampling"
	"github.com/vivarium-go/vivarium/embed/metrics"
	"github.com/vivarium-go/vivarium/engine"
)

// Samples returns the node's metrics, read anew at each use. It makes the node a metrics.Source.
// docs/metrics.md says what each is for.
//
// Samples works at any time, also after Close. It waits for no quorum. For locks that are busy, such
// as those of a shard that stands still, and for the size of the disk, it waits 50 ms at most. What
// it does not get in that time is not among the samples, and neither is what the node does not
// know. No sample names the member or the ensemble: anyone who collects the metrics of several nodes
// adds a label; see metrics.With.
func (n *Node) Samples() iter.Seq[metrics.Sample] {
	return sampling.Samples(func(to *sampling.To) {
		f := n.in().Engine.Figures()
		sampleNode(to, &f)
		to.Is("ready", "1 if the node serves: see Node.Health.", n.Health().Ready)
		sampleSessions(to, &f)
		for i := range f.Shards {
			s := shardSampler{to, strconv.Itoa(int(f.Shards[i].Shard))}
			s.raft(&f.Shards[i])
			s.requests(&f.Shards[i])
			s.contents(&f.Shards[i])
		}
		for i := range f.Peers {
			samplePeer(to, &f.Peers[i])
		}
		if !n.in().Config.Alone {
			to.Certificates(n.in().Config.TLS, "member")
		}
		to.Counter("log_lines_dropped_total",
			"Lines of the log that were left out, because the logger was slow or panicked.",
			n.in().LinesDropped())
		to.Counter("events_dropped_total",
			"Calls of Config.Events that were left out, because an observer was slow.",
			n.in().EventsDropped())
		if audited := n.in().Audited; audited != nil {
			given, dropped := audited()
			to.Counter("audit_records_total", "Records that Config.Audit was given.", given)
			to.Counter("audit_dropped_total",
				"Records that Config.Audit did not get, because it was slow or panicked.", dropped)
		}
	})
}

// version is that of the module in this program.
var version = sync.OnceValue(func() string {
	const path = "github.com/vivarium-go/vivarium"
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if info.Main.Path == path {
		return info.Main.Version
	}
	for _, m := range info.Deps {
		if m.Path == path {
			return m.Version
		}
	}
	return "unknown"
})

func sampleNode(to *sampling.To, f *engine.Figures) {
	to.Gauge("build_info",
		"Always 1. The labels say which build the node runs.",
		1, "version", version(), "go", runtime.Version())
	to.Is("failed", "1 if the node has failed: Node.Err says why.", f.Failed)
	to.Gauge("level",
		"The feature level of the ensemble, as this member knows it.", float64(f.Level))
	to.Gauge("level_readable",
		"The highest feature level that this member agrees to.", float64(f.LevelMax))
	const fsync = "How long fsyncs of files took."
	to.Histogram("fsync_seconds", fsync, &f.Fsyncs.Log, "file", "log")
	to.Histogram("fsync_seconds", fsync, &f.Fsyncs.Other, "file", "other")
	if f.Space != nil {
		to.Gauge("disk_free_bytes",
			"What is free on the file system of the directory.", float64(f.Space.Free))
		to.Gauge("disk_size_bytes",
			"The size of the file system of the directory.", float64(f.Space.Size))
	}
	if f.Space != nil {
		to.Gauge("log_bytes", "What the files of the Raft log take on the disk, with what is reserved.", float64(f.Space.Log))
		to.Gauge("image_bytes", "What the images of all shards take on the disk.", float64(f.Space.Image))
	}
	to.Gauge("start_time_seconds", "When the node was started, in seconds since 1970.",
		float64(f.Started.UnixMilli())/1000)
	for _, p := range f.Starts {
		to.Gauge("start_seconds", "How long the phases of the start took.", p.Took.Seconds(), "phase", p.Phase)
	}
}

func sampleSessions(to *sampling.To, f *engine.Figures) {
	const sessions = "Open sessions: this node's own, those of clients connected to it, or all that the ensemble has."
	if s := f.Sessions; s != nil {
		to.Gauge("sessions", sessions, float64(s.Sessions), "kind", "own")
		to.Gauge("sessions", sessions, float64(s.Remote), "kind", "remote")
		to.Gauge("sessions_suspended",
			"Sessions of this node that are Suspended, those of clients included.",
			float64(s.Suspended))
		sampleClaims(to, &s.Claims, f.Life.Queued.Read())
		if s.HasMargin {
			to.Gauge("session_margin_seconds",
				"How long the node may yet be silent before the first of its own sessions is suspended and loses what it holds.",
				s.Margin.Seconds())
		}
	}
	if c := f.Shards[0].Counts; c != nil {
		to.Gauge("sessions", sessions, float64(c.Sessions), "kind", "ensemble")
	}
	const suspensions = "Suspensions of this node's own sessions: no commit in time, or a jump of the clocks."
	to.Counter("suspensions_total", suspensions, f.Life.Silences.Read(), "cause", "silence")
	to.Counter("suspensions_total", suspensions, f.Life.Jumps.Read(), "cause", "clock")
	for why := range f.Life.Ends {
		to.Counter("session_ends_total",
			"Sessions that ended on this node.",
			f.Life.Ends[why].Read(), "why", engine.EndCause(why).String())
	}
	for why := range f.Life.Losses {
		to.Counter("holds_lost_total",
			"Locks, leaderships and permits that this node's sessions lost.",
			f.Life.Losses[why].Read(), "why", engine.LossCause(why).String())
	}
}

// sampleClaims yields what is held and who waits. queued counts the callers of mutexes that wait
// without a claim.
func sampleClaims(to *sampling.To, counts *engine.ClaimCounts, queued int64) {
	for k := range engine.ClaimKinds {
		to.Gauge("holds", "Locks, leaderships, permits and tasks that this node's sessions hold.",
			float64(counts.Held[k]), "kind", k.String())
		if !k.Queues() {
			continue
		}
		waiting := float64(counts.Standing[k])
		if k == engine.ClaimMutex {
			waiting += float64(queued)
		}
		to.Gauge("waiters", "Callers on this node that wait for a lock, a leadership or permits.",
			waiting, "kind", k.String())
	}
}

// A shardSampler yields the samples of one shard.
type shardSampler struct {
	*sampling.To
	shard string
}

func (s shardSampler) raft(f *engine.ShardFigures) {
	s.Is("shard_has_leader",
		"1 if the node knows a leader of the shard.", f.Leader.Member != 0, "shard", s.shard)
	s.Is("shard_leads", "1 if the node leads the shard.", f.Leads, "shard", s.shard)
	s.Gauge("term",
		"The newest term of the shard that the node knows.",
		float64(f.Leader.Term), "shard", s.shard)
	s.Counter("leader_changes_total",
		"New leaders and new terms that the node has learned of.",
		f.Leaders.Read(), "shard", s.shard)
	for why := range f.Transfers {
		s.Counter("leadership_transfers_total", "Transfers of the leadership that this node has asked for.",
			f.Transfers[why].Read(), "shard", s.shard, "why", engine.TransferCause(why).String())
	}
	if f.Committed != nil {
		s.Gauge("committed_index",
			"The newest entry of the Raft log that the node knows to be committed.",
			float64(*f.Committed), "shard", s.shard)
	}
	s.Gauge("applied_index",
		"The newest entry of the Raft log that the node has applied.",
		float64(f.State.Applied), "shard", s.shard)
	s.Histogram("apply_seconds",
		"How long it took to apply committed entries, of one or more at a time.",
		&f.Replica.Applies, "shard", s.shard)
	s.Counter("applied_bytes_total",
		"Bytes of the entries that the node has applied.", f.Replica.Bytes.Read(), "shard", s.shard)
	s.Histogram("install_seconds",
		"How long it took to install a state that another member sent.",
		&f.Replica.Installs, "shard", s.shard)
	if f.Raft != nil {
		s.Counter("states_sent_total",
			"States that were sent to members that lagged too far behind.",
			f.Raft.Snapshots.Read(), "shard", s.shard)
		s.Counter("log_cuts_total",
			"How often the old part of the log was cut off.", f.Raft.Cuts.Read(), "shard", s.shard)
		s.Histogram("sync_seconds",
			"How long calls of Sync took that succeeded.", &f.Raft.Barriers, "shard", s.shard)
	}
}

func (s shardSampler) requests(f *engine.ShardFigures) {
	s.Histogram("commit_seconds",
		"How long it took from sending a batch of requests until the node had applied it.",
		&f.Outbox.Commits, "shard", s.shard)
	for outcome := range f.Outbox.Outcomes {
		s.Counter("requests_total", "Requests of this node, by what their callers were told.",
			f.Outbox.Outcomes[outcome].Read(), "shard", s.shard, "outcome", engine.Outcome(outcome).String())
	}
	s.Counter("resends_total",
		"Batches that were sent again, because they may have been lost.",
		f.Outbox.Resends.Read(), "shard", s.shard)
	if q := f.Queue; q != nil {
		s.Gauge("queue_requests",
			"Requests of this node that wait to be sent.", float64(q.Requests), "shard", s.shard)
		s.Gauge("queue_bytes",
			"Bytes of the requests of this node that wait to be sent.",
			float64(q.Bytes), "shard", s.shard)
		s.Gauge("inflight_batches",
			"Batches that were sent and that the node has not applied.",
			float64(q.Inflight), "shard", s.shard)
	}
}

func (s shardSampler) contents(f *engine.ShardFigures) {
	s.Gauge("zxid",
		"The newest transaction that reads on this node show. It grows by one with each.",
		float64(f.State.Zxid), "shard", s.shard)
	s.Gauge("znodes",
		"Znodes, with those that every shard has.", float64(f.State.Znodes), "shard", s.shard)
	s.Gauge("data_bytes",
		"Bytes of the paths and data of all znodes.", float64(f.State.Size), "shard", s.shard)
	s.Gauge("tree_bytes",
		"What Config.MaxTreeSize bounds: about the memory that the znodes use.",
		float64(f.State.TreeSize), "shard", s.shard)
	s.Counter("soft_quota_exceeded_total",
		"Transactions that raised a subtree's usage above a soft limit.",
		f.State.OverSoftQuota, "shard", s.shard)
	if f.Counts != nil {
		s.Gauge("ephemerals", "Ephemeral znodes.", float64(f.Counts.Ephemerals), "shard", s.shard)
	}
	w := f.Watches
	if w == nil {
		return
	}
	const watches = "Watches on this node: of its own sessions, or of clients connected to it."
	s.Gauge("watches", watches, float64(w.Streams), "shard", s.shard, "kind", "own")
	s.Gauge("watches", watches, float64(w.Marks), "shard", s.shard, "kind", "remote")
	s.Counter("watch_events_total",
		"Events that were queued for watches.", w.Events, "shard", s.shard)
	const ends = "Watches of this node's own sessions that ended with an error: too many events waited, or some were not seen."
	s.Counter("watch_ends_total", ends, w.Overflows, "shard", s.shard, "why", "overflow")
	s.Counter("watch_ends_total", ends, w.Gaps, "shard", s.shard, "why", "gap")
}

func samplePeer(to *sampling.To, p *engine.PeerFigures) {
	peer := strconv.FormatUint(p.Member, 10)
	to.Is("peer_connected",
		"1 if the member has a connection to the peer and the peer has one to it. Only leaders need one to every peer.",
		p.Reached && p.Heard, "peer", peer)
	m := p.Meters
	if m == nil {
		return
	}
	to.Histogram("peer_round_trip_seconds",
		"How long the peer took to answer, with all that was sent to it before.",
		&m.RoundTrips, "peer", peer)
	to.Counter("peer_sent_bytes_total",
		"Bytes that were sent to the peer.", m.Sent.Read(), "peer", peer)
	to.Counter("peer_received_bytes_total",
		"Bytes that the peer sent.", m.Received.Read(), "peer", peer)
	const dropped = "Messages to the peer that were lost without a connection, and messages of the peer that are not for this member."
	to.Counter("peer_dropped_total", dropped, m.Unsent.Read(), "peer", peer, "why", "disconnected")
	to.Counter("peer_dropped_total", dropped, m.Invalid.Read(), "peer", peer, "why", "invalid")
	to.Counter("peer_refused_total",
		"How often one of the two refused the other. The log says why.",
		m.Refused.Read(), "peer", peer)
}
