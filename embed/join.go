package embed

import (
	"github.com/vivarium-go/vivarium/engine"
)

// votersMax bounds Config.Voters: each write waits for a majority of them.
const votersMax = 9

// completeJoin completes and checks what members have that come and go.
func (c Config) completeJoin(e *engine.Config, p *problems) {
	e.Alone, e.Join = false, c.Join
	e.Advertise = or(c.Advertise, e.Advertise)
	e.Name, e.Zone = c.Name, c.Zone
	e.Observer, e.Ephemeral, e.Voters, e.Found, e.Admit = c.Observer, c.Ephemeral, or(c.Voters, DefaultVoters), c.Found, c.Admit
	if len(c.Members) == 0 && c.ID != 0 {
		p.add("ID is %d but Members is empty: the ensemble gives a member that joins its id", c.ID)
	}
	if c.Found != nil && len(c.Members) > 0 {
		p.add("Found and Members are both set: one of them decides who founds the ensemble")
	}
	if e.Advertise == "" {
		p.add("Advertise is empty: give the host:port at which other members reach this one")
	} else if err := checkAddr(e.Advertise, false); err != nil {
		p.add("Advertise is %q: %v", e.Advertise, err)
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

// whichFounder sets the ID of a founder that says only where it is reached. Who is none of the
// founders needs them for nothing. So one config file serves all replicas.
func (c Config) whichFounder() Config {
	if len(c.Join) == 0 || c.ID != 0 || c.Advertise == "" {
		return c
	}
	for id, addr := range c.Members {
		if addr == c.Advertise {
			c.ID = id
			return c
		}
	}
	c.Members = nil
	return c
}

// completeDeadAfter completes DeadAfter, which depends on the session timeouts.
func (c Config) completeDeadAfter(e *engine.Config, p *problems) {
	if len(c.Join) == 0 || c.DeadAfter < 0 {
		return
	}
	floor := 2 * e.MaxSessionTimeout
	e.DeadAfter = or(c.DeadAfter, max(DefaultDeadAfter, floor))
	if e.DeadAfter < floor {
		p.add("DeadAfter is %v: want %v at least, twice MaxSessionTimeout, or sessions would outlive their member", c.DeadAfter, floor)
	}
}

// refuseWithoutJoin reports settings that mean nothing without Join.
func (c Config) refuseWithoutJoin(p *problems) {
	set := map[bool][]string{}
	for _, f := range []struct {
		name string
		set  bool
	}{{"Advertise", c.Advertise != ""}, {"Name", c.Name != ""}, {"Zone", c.Zone != ""}, {"Observer", c.Observer}, {"Ephemeral", c.Ephemeral},
		{"Voters", c.Voters != 0}, {"DeadAfter", c.DeadAfter != 0}, {"Found", c.Found != nil}, {"Admit", c.Admit != nil}} {
		set[f.set] = append(set[f.set], f.name)
	}
	for _, name := range set[true] {
		p.add("%s is set but Join is empty: it is for members that come and go", name)
	}
}
