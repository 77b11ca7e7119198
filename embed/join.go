package embed

import (
	"maps"
	"slices"

	"github.com/vivarium-go/vivarium/engine"
)

const (
	// idMax bounds the ids in a Config. Those who join get the ids above, and a recovery leaves some out.
	idMax MemberID = 1 << 62
	// votersMax bounds Config.Voters: each write waits for a majority of them.
	votersMax = 9
)

// alone reports whether the node is an ensemble by itself, which nobody can reach.
func (c Config) alone() bool { return len(c.Members)+len(c.Join) == 0 }

// completeAlone completes the Config of a node that is alone.
func (c Config) completeAlone(e *engine.Config, p *problems) {
	e.Alone, e.Member, e.Voters = true, or(c.ID, 1), DefaultVoters
	e.Members = map[MemberID]string{e.Member: ""}
	if e.Member > idMax {
		p.add("ID is %d: the highest is %d, because who joins later is counted on from there", c.ID, idMax)
	}
	for _, f := range []struct {
		name string
		set  bool
	}{{"Listen", c.Listen != ""}, {"Advertise", c.Advertise != ""}, {"Name", c.Name != ""}, {"Zone", c.Zone != ""}, {"Observer", c.Observer}, {"Ephemeral", c.Ephemeral},
		{"Voters", c.Voters != 0}, {"DeadAfter", c.DeadAfter != 0}, {"Found", c.Found != nil}, {"Admit", c.Admit != nil}} {
		if f.set {
			p.add("%s is set but Members and Join are empty: a node alone opens no port, and has no other members", f.name)
		}
	}
}

// completeMembers completes and checks what is said of this member and of the others.
func (c Config) completeMembers(e *engine.Config, p *problems) {
	e.Join = c.Join
	if len(e.Join) == 0 {
		e.Join = slices.Sorted(maps.Values(c.Members))
	}
	c.completeFounders(e, p)
	e.Advertise = or(c.Advertise, e.Members[e.Member])
	c.completeListen(e, p)
	if e.Name, e.Zone = c.Name, c.Zone; e.Name == "" && e.Member != 0 {
		e.Name = engine.FounderName(e.Member)
	}
	e.Observer, e.Ephemeral, e.Voters, e.Found, e.Admit = c.Observer, c.Ephemeral, or(c.Voters, DefaultVoters), c.Found, c.Admit
	if c.Found != nil && len(c.Members) > 0 {
		p.add("Found and Members are both set: one of them decides who founds the ensemble")
	}
	for i, seed := range c.Join {
		if err := checkAddr(seed, false); err != nil {
			p.add("Join[%d] is %q: %v", i, seed, err)
		}
	}
	if e.Voters < 1 || e.Voters > votersMax || e.Voters%2 == 0 {
		p.add("Voters is %d: want 1, 3, 5, 7 or 9, because an even number survives no more failures than one less", c.Voters)
	}
	if len(e.Name) > engine.NameMax || len(e.Zone) > engine.NameMax || len(e.Advertise) > engine.AddressMax {
		p.add("Name and Zone may have %d bytes, Advertise %d", engine.NameMax, engine.AddressMax)
	}
}

// completeFounders checks Members, and finds out which of them this node is. If it is none, it has no
// use for them but their addresses. So one Config can serve all replicas.
func (c Config) completeFounders(e *engine.Config, p *problems) {
	ids := sortedIDs(c.Members)
	c.checkFounders(ids, p)
	at := slices.IndexFunc(ids, func(id MemberID) bool { return c.Members[id] == c.Advertise })
	_, found := c.Members[c.ID]
	switch {
	case found:
		e.Member, e.Members = c.ID, maps.Clone(c.Members)
	case c.ID == 0 && at >= 0:
		e.Member, e.Members = ids[at], maps.Clone(c.Members)
	case c.ID != 0 && len(ids) == 0:
		p.add("ID is %d but Members is empty: the ensemble gives a member that joins its id", c.ID)
	case c.ID != 0:
		p.add("ID is %d, which is none of the Members %s: leave it out for a node that is to join, and set Advertise", c.ID, list(ids))
	case c.Advertise == "" && len(ids) == 0:
		p.add("Advertise is empty: give the host:port at which other members reach this one")
	case c.Advertise == "":
		p.add("ID is 0 or left out: say which of the Members %s this is, or give its own address in Advertise", list(ids))
	}
}

func (c Config) checkFounders(ids []MemberID, p *problems) {
	seen := make(map[string]MemberID)
	for _, id := range ids {
		addr := c.Members[id]
		if id == 0 {
			p.add("Members has the id 0: ids begin at 1, so ordinals that begin at 0 need 1 added, " +
				"in ID too")
		}
		if id > idMax {
			p.add("Members has the id %d: the highest is %d, because who joins later is counted on from there", id, idMax)
		}
		if err := checkAddr(addr, false); err != nil {
			p.add("Members[%d] is %q: %v", id, addr, err)
		} else if other, ok := seen[addr]; ok {
			p.add("Members[%d] and Members[%d] are both %q", other, id, addr)
		}
		seen[addr] = id
	}
}

// completeListen checks where this member is reached, and sets where to bind for that.
func (c Config) completeListen(e *engine.Config, p *problems) {
	if c.Advertise != "" {
		if err := checkAddr(c.Advertise, false); err != nil {
			p.add("Advertise is %q: %v", c.Advertise, err)
		}
	}
	if e.Listen == "" {
		e.Listen = bindAddr(e.Advertise)
	} else if err := checkAddr(e.Listen, true); err != nil {
		p.add("Listen is %q: %v", e.Listen, err)
	}
}

// completeDeadAfter completes DeadAfter, which depends on the session timeouts.
func (c Config) completeDeadAfter(e *engine.Config, p *problems) {
	if c.DeadAfter < 0 {
		return
	}
	floor := 2 * e.MaxSessionTimeout
	e.DeadAfter = or(c.DeadAfter, max(DefaultDeadAfter, floor))
	if e.DeadAfter < floor {
		p.add("DeadAfter is %v: want %v at least, twice MaxSessionTimeout, or sessions would outlive their member", c.DeadAfter, floor)
	}
}
