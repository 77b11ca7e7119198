package offline

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"

	"github.com/vivarium-go/vivarium/engine/ask"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/replication"
	"github.com/vivarium-go/vivarium/replication/transport"
	"github.com/vivarium-go/vivarium/session"
)

// placesOf is a network in which each address does as its place says.
type placesOf struct {
	mu     sync.Mutex
	dialed map[string]int
	at     func(address string) (net.Conn, error)
}

func (p *placesOf) Listen() (net.Listener, error) { return nil, errors.ErrUnsupported }

func (p *placesOf) Resolve(_ context.Context, at string) ([]transport.Target, error) {
	return []transport.Target{{Address: at}}, nil
}

func (p *placesOf) Dial(_ context.Context, to transport.Target) (net.Conn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dialed[to.Address]++
	return p.at(to.Address)
}

func nobody(string) (net.Conn, error) {
	return nil, &net.OpError{Op: "dial", Err: errors.New("connection refused")}
}

// acceptsOnly accepts a connection and says nothing.
func acceptsOnly(string) (net.Conn, error) {
	near, _ := net.Pipe()
	return near, nil
}

func lost(addresses ...string) *Remains {
	r := &Remains{Member: 1, Lineage: session.Lineage{7}}
	s := ShardRemains{}
	s.Members.Voters = []replication.MemberID{1}
	for i, at := range addresses {
		r.Members = append(r.Members, session.Member{ID: session.MemberID(i + 2), Address: at})
		s.Members.Voters = append(s.Members.Voters, replication.MemberID(i+2))
	}
	r.Shards = []ShardRemains{s}
	return r
}

// M76: who accepts a connection may run: it stands still, it is loading, or it wants TLS.
func TestAskLost_WhoDoesNotAnswer(t *testing.T) {
	noTLS := func(string) (net.Conn, error) {
		return nil, errors.New("tls: first record does not look like a handshake")
	}
	for _, c := range []struct {
		name string
		at   func(string) (net.Conn, error)
		gone []replication.MemberID
		ok   bool
	}{
		{"nobody", nobody, nil, true},
		{"silence", acceptsOnly, nil, false},
		{"no TLS", noTLS, nil, false},
		{"somebody else, as the operator knows", acceptsOnly, []replication.MemberID{2}, true},
	} {
		testkit.Bubble(t, func(t *testing.T) {
			err := askLost(t.Context(), lost("two.test:1"), RecoverOptions{Gone: c.gone, Network: &placesOf{dialed: map[string]int{}, at: c.at}})
			if (err == nil) != c.ok {
				t.Errorf("%s: %v", c.name, err)
			}
		})
	}
}

// M76: all addresses are asked, however many do not answer.
func TestAskLost_AsksEverywhere(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		n := &placesOf{dialed: map[string]int{}, at: nobody}
		var join []string
		for i := range 3*ask.AtOnceMax + 1 {
			join = append(join, fmt.Sprintf("gone-%d.test:1", i))
		}
		if err := askLost(t.Context(), lost("two.test:1", "three.test:1"), RecoverOptions{Join: join, Network: n}); err != nil {
			t.Error(err)
		}
		for _, at := range append(join, "two.test:1", "three.test:1") {
			if n.dialed[at] == 0 {
				t.Errorf("nobody has asked at %s", at)
			}
		}
	})
}

// M76: nobody can be asked where the directory has no addresses.
func TestAskLost_WithoutAddresses(t *testing.T) {
	for join := range 3 {
		for gone := range 3 {
			err := askLost(t.Context(), lost("", ""), RecoverOptions{Join: []string{"a.test:1", "b.test:1"}[:join], Gone: []replication.MemberID{2, 3}[:gone],
				Network: &placesOf{dialed: map[string]int{}, at: nobody}})
			if (err == nil) != (join+gone >= 2) {
				t.Errorf("%d addresses, %d gone: %v", join, gone, err)
			}
		}
	}
}

// M76: an address twice is one address.
func TestAskLost_OneAddressTwice(t *testing.T) {
	err := askLost(t.Context(), lost("", ""), RecoverOptions{Join: []string{"a.test:1", "a.test:1"}, Network: &placesOf{dialed: map[string]int{}, at: nobody}})
	if err == nil {
		t.Error("two lost voters, one address, and nobody is missed")
	}
}

// M76: what an answer says of the ensemble. The directory may be a copy of that of a member that runs.
func TestRemains_Runs(t *testing.T) {
	r := lost("two.test:1")
	for _, c := range []struct {
		answer ask.Answer
		lost   bool
	}{
		{ask.Answer{Member: 2, Lineage: r.Lineage}, false},
		{ask.Answer{Member: 1, Lineage: r.Lineage}, false},
		{ask.Answer{Member: 5, Lineage: r.Lineage, Leader: 5}, false},
		{ask.Answer{Member: 5, Lineage: r.Lineage}, true}, // a learner that knows no leader
		{ask.Answer{Member: 2, Lineage: session.Lineage{8}}, true},
		{ask.Answer{Lineage: r.Lineage}, true},
		{ask.Answer{Member: 2, Lineage: session.Lineage{8}, Ancestors: []session.Lineage{r.Lineage}}, false},
	} {
		if err := r.runs(&c.answer); (err == nil) != c.lost {
			t.Errorf("%+v: %v", c.answer, err)
		}
	}
}
