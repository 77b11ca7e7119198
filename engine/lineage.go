package engine

import (
	"crypto/rand"
	"slices"
	"time"

	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/replication"
	"github.com/vivarium-go/vivarium/session"
)

const (
	// lineageInterval is how often a node looks whether the ensemble has a lineage.
	lineageInterval = time.Second
	// foundersLooks is how many looks the leader waits for founders that have not registered. One may
	// have been lost right after the founding.
	foundersLooks = 10
)

// lineageLoop has the ensemble choose its lineage, and records it in the identity file. It ends then,
// or with the node. The table of members takes the directory of each founder from its Register.
func (e *Engine) lineageLoop() {
	ticker := time.NewTicker(lineageInterval)
	defer ticker.Stop()
	for looks := 0; !e.knowLineage(looks); looks++ {
		select {
		case <-e.stop:
			return
		case <-e.done:
			return
		case <-ticker.C:
		}
	}
}

// knowLineage does one round of lineageLoop. It reports whether the lineage is known.
func (e *Engine) knowLineage(looks int) bool {
	home := e.home()
	l := home.Lineage()
	if slices.Contains(e.ancestors(), l) {
		return false // the new one comes later in the log
	}
	if l == (session.Lineage{}) {
		here := func(m MemberID) bool { _, known := home.Origin(session.MemberID(m)); return known }
		complete := !slices.ContainsFunc(e.founders(), func(m MemberID) bool { return !here(m) })
		if e.Leader(home.Shard).Member == e.self() && (complete || looks >= foundersLooks) {
			e.proposeLineage()
		}
		return false
	}
	_ = e.amend(func(id *replication.Identity) bool {
		isNews := id.Lineage != l
		id.Lineage = l
		return isNews
	})
	return true
}

// proposeLineage proposes a random lineage. Whoever leads at this time may propose another; the
// first one in the log counts. If it is lost, the loop proposes one again.
func (e *Engine) proposeLineage() {
	var l session.Lineage
	rand.Read(l[:]) // never fails
	_, _ = e.host.Load().Propose(command.HomeShard, command.EncodeFound(l, sessionIDs(e.founders()), uint32(e.cfg.Shards), time.Now().UnixMilli()))
}

// lineage returns the ensemble's lineage; zero if this node does not know it. The identity file has
// it before the home shard is loaded.
func (e *Engine) lineage() [16]byte {
	l := e.home().Lineage()
	if p := e.place.Load(); p != nil && slices.Contains(p.ancestors, l) {
		return p.lineage
	}
	if l != (session.Lineage{}) {
		return l
	}
	return e.identity.now().Lineage
}
