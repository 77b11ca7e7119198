package governor

import (
	"crypto/rand"
	"slices"
	"time"

	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/engine/roster"
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
func (o *Options) lineageLoop() {
	ticker := time.NewTicker(lineageInterval)
	defer ticker.Stop()
	for looks := 0; !o.knowLineage(looks); looks++ {
		select {
		case <-o.Reach.Done():
			return
		case <-o.Done:
			return
		case <-ticker.C:
		}
	}
}

// knowLineage does one round of lineageLoop. It reports whether the lineage is known.
func (o *Options) knowLineage(looks int) bool {
	home := o.home()
	l := home.Lineage()
	if slices.Contains(o.Roster.Ancestors(), l) {
		return false // the new one comes later in the log
	}
	if l == (session.Lineage{}) {
		here := func(m MemberID) bool { _, known := home.Origin(session.MemberID(m)); return known }
		complete := !slices.ContainsFunc(o.Roster.Founders(), func(m MemberID) bool { return !here(m) })
		if o.Node.Leader(home.Shard).Member == o.Roster.Self() && (complete || looks >= foundersLooks) {
			o.proposeLineage()
		}
		return false
	}
	_ = o.Roster.Identity.Amend(func(id *replication.Identity) bool {
		isNews := id.Lineage != l
		id.Lineage = l
		return isNews
	})
	return true
}

// proposeLineage proposes a random lineage. Whoever leads at this time may propose another; the
// first one in the log counts. If it is lost, the loop proposes one again.
func (o *Options) proposeLineage() {
	var l session.Lineage
	rand.Read(l[:]) // never fails
	o.propose(command.EncodeFound(l, roster.SessionIDs(o.Roster.Founders()), uint32(len(o.Shards)), time.Now().UnixMilli()))
}
