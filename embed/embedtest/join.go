package embedtest

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"slices"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/engine/offline"
	"github.com/vivarium-go/vivarium/internal/files/memory"
	"github.com/vivarium-go/vivarium/replication/transport"
	"github.com/vivarium-go/vivarium/replication/transport/transporttest"
)

// seeds stands for the addresses of all members that run.
const seeds = "members.test:1"

// place sets what a member's Config has because of its place.
func (e *Ensemble) place(c *embed.Config, id embed.MemberID) {
	c.Join, c.Advertise = []string{seeds}, e.address(id)
	if e.churn != nil {
		c.Name, c.Voters = fmt.Sprint("place-", id), len(e.found)+newcomers
	}
	if int(id) > len(e.found) {
		return
	}
	c.ID, c.Members = id, make(map[embed.MemberID]string)
	for _, m := range e.found {
		c.Members[m] = e.address(m)
	}
}

// address returns where a member is reached now.
func (e *Ensemble) address(id embed.MemberID) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return cmp.Or(e.recycled[id], fmt.Sprintf("member-%d.test:%d", id, e.ports[id]))
}

// Join starts a new member in a place of its own and returns the place. It does not wait until the
// member is ready.
func (e *Ensemble) Join() embed.MemberID {
	e.t.Helper()
	id := e.AddPlace()
	e.Start(id)
	return id
}

// ID returns the id of the member that runs in a place. It is zero while that has yet to join.
func (e *Ensemble) ID(place embed.MemberID) embed.MemberID {
	e.t.Helper()
	return e.Node(place).Status().Member
}

// Votes returns on how many shards a member votes, as a node knows. [embed.Member] has only its
// role on the first one.
func Votes(n *embed.Node, member embed.MemberID) (shards int) {
	e := engineOf(n)
	for _, m := range e.Members() {
		if embed.MemberID(m.ID) != member {
			continue
		}
		for _, s := range e.Status() {
			if m.Votes(uint32(s.Shard)) {
				shards++
			}
		}
	}
	return shards
}

// Voters returns who votes on each shard by its Raft, no older than the call. A change that is
// under way may be there, and not in the list of members yet.
func Voters(ctx context.Context, n *embed.Node) (voters [][]embed.MemberID, err error) {
	e := engineOf(n)
	for _, s := range e.Status() {
		m, err := e.Membership(ctx, s.Shard)
		if err != nil {
			return nil, err
		}
		voters = append(voters, m.Voters)
	}
	return voters, nil
}

// Wipe empties the directory of a member that does not run, as the loss of its disk does.
func (e *Ensemble) Wipe(id embed.MemberID) {
	e.t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.taken[id] {
		e.t.Fatalf("member %d runs, or is being started or stopped", id)
	}
	if e.disks != nil {
		e.disks[id] = memory.New()
		return
	}
	if err := os.RemoveAll(e.Dir(id)); err != nil {
		e.t.Fatal(err)
	}
}

// Recover does what the command vivarium recover does, to the directory of a member that does not
// run. From its next start on the member is alone, without the voters that are lost.
func (e *Ensemble) Recover(id embed.MemberID, lost ...embed.MemberID) error {
	_, err := offline.Recover(context.Background(), offline.RecoverOptions{Dir: e.Dir(id), Stopped: lost, Join: e.addresses(),
		Files: e.disk(id), Network: e.faultsOf(id).links.Network(placed{e.mesh.Network(uint64(id)), e})})
	return err
}

// Readdress gives a member that does not run another address. Nobody answers at the old one.
func (e *Ensemble) Readdress(id embed.MemberID) {
	e.t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ports[id]++
	delete(e.recycled, id)
}

// TakeAddress gives a member that does not run an address at which another one was.
func (e *Ensemble) TakeAddress(id embed.MemberID, address string) {
	e.t.Helper()
	if slices.Contains(e.addresses(), address) {
		e.t.Fatalf("somebody is at %s", address)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.recycled[id] = address
}

// placed is the mesh in which each member is reached at its present address only.
type placed struct {
	transport.Network
	e *Ensemble
}

// Dial connects to the member whose present address it is.
func (n placed) Dial(ctx context.Context, to transport.Target) (net.Conn, error) {
	at := slices.Index(n.e.addresses(), to.Address)
	if at < 0 {
		return nil, &net.OpError{Op: "dial", Net: "mesh", Err: transporttest.ErrNoListener}
	}
	to.Address = fmt.Sprintf("member-%d.test:1", n.e.Places()[at]) // where the mesh has it
	return n.Network.Dial(ctx, to)
}

// Resolve returns for the name of the seeds the present addresses of the founders, and of all places
// where somebody was: founders wait for all that are in Join.
func (n placed) Resolve(ctx context.Context, address string) (list []transport.Target, err error) {
	if address != seeds {
		return n.Network.Resolve(ctx, address)
	}
	for _, id := range n.e.Places() {
		if int(id) <= len(n.e.found) || n.e.wasStarted(id) {
			list = append(list, transport.Target{Address: n.e.address(id)})
		}
	}
	return list, ctx.Err()
}

// wasStarted reports whether somebody runs or ran in a place.
func (e *Ensemble) wasStarted(id embed.MemberID) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, was := e.taken[id]
	return was
}

// addresses returns the present addresses of all places.
func (e *Ensemble) addresses() (list []string) {
	for _, id := range e.Places() {
		list = append(list, e.address(id))
	}
	return list
}
