package membertest

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/internal/embedkit"
)

// joining waits until a node that has yet to join says what it waits for.
func joining(e *embedtest.Ensemble, place embed.MemberID, want string) {
	e.Until("a node to wait for: "+want, func() bool { return strings.Contains(e.Node(place).Status().Joining, want) })
}

// unchanged checks that the ensemble of a place has these members and no others.
func unchanged(t *testing.T, e *embedtest.Ensemble, place embed.MemberID, want ...embed.MemberID) {
	t.Helper()
	var got []embed.MemberID
	for _, m := range e.Node(place).Members() {
		got = append(got, m.ID)
	}
	if !slices.Equal(got, want) {
		t.Errorf("the members are %v, want %v", got, want)
	}
}

// M24: Found says once who founds. Nodes wait while it says no, or nothing.
func TestJoin_Found(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		chosen, down := "", true
		e := embedtest.New(t, 3, embedtest.Options{Stopped: true, Config: func(c *embed.Config) {
			own := c.Advertise
			c.ID, c.Members = 0, nil
			c.Found = func(context.Context) (bool, error) {
				mu.Lock()
				defer mu.Unlock()
				if down {
					return false, errors.New("the arbiter is down")
				}
				return chosen == own, nil
			}
		}})
		places := e.Members()
		for _, place := range places {
			e.Start(place)
		}
		for _, place := range places {
			joining(e, place, "Config.Found does not say whether to found: the arbiter is down")
		}
		mu.Lock()
		down = false
		mu.Unlock()
		for _, place := range places {
			joining(e, place, "Config.Found says no, so this node waits for a member, or for the node to which Found says yes; no seed of")
			joining(e, place, "has yet to join, too")
		}
		mu.Lock()
		chosen = "member-2.test:1"
		mu.Unlock()
		for _, place := range places {
			e.Ready(place)
		}
		if id := e.ID(2); id != 1 {
			t.Errorf("the founder is member %d", id)
		}
		e.Until("one ensemble", func() bool { return len(e.Node(2).Members()) == 3 })
	})
}

// M26: the founder has lost its directory while all others are down. Found has said yes once, so it
// waits for them, and becomes a new member of the ensemble that it has founded.
func TestJoin_AWipedFounderWaitsForTheOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var once atomic.Bool
		e := embedtest.New(t, 1, embedtest.Options{Config: func(c *embed.Config) {
			c.ID, c.Members = 0, nil
			c.Found = func(context.Context) (bool, error) { return once.CompareAndSwap(false, true), nil }
		}})
		embedkit.Joined(e, 2)
		embedkit.Voting(e, 1, 1, 2, 3)
		for _, place := range e.Members() {
			e.Kill(place)
		}
		e.Wipe(1)
		e.Start(1)
		joining(e, 1, "Config.Found says no")
		<-time.After(time.Minute)
		if id := e.ID(1); id != 0 {
			t.Fatalf("it has founded again, as member %d", id)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if why := e.Node(1).Ready(ctx); why == nil || !strings.Contains(why.Error(), "Config.Found says no") {
			t.Errorf("Ready: %v", why)
		}
		for place := embed.MemberID(2); place <= 3; place++ {
			e.Start(place)
		}
		e.Ready(1)
		if id := e.ID(1); id != 4 {
			t.Errorf("it has come back as member %d", id)
		}
	})
}

// Founders whose lists differ do not found, whatever the order in which they start.
func TestJoin_FoundersWithOtherLists(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := embedtest.New(t, 3, embedtest.Options{Stopped: true, Config: func(c *embed.Config) {
			if c.ID == 3 { // it leaves out the first
				delete(c.Members, 1)
			}
		}})
		for _, place := range e.Members() {
			e.Start(place)
		}
		joining(e, 1, "members 3 are missing; this node has")
		joining(e, 3, "members 2 are missing; this node has")
		<-time.After(time.Minute)
		for _, place := range e.Members() {
			if id := e.ID(place); id != 0 {
				t.Errorf("the node in place %d has founded as member %d", place, id)
			}
		}
	})
}

// A founder finds its id by its address, and who is none of the founders joins: one Config serves
// all.
func TestJoin_OneConfigForAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var founders map[embed.MemberID]string
		e := embedtest.New(t, 3, embedtest.Options{Stopped: true, Config: func(c *embed.Config) {
			if c.ID != 0 {
				founders = c.Members
			}
			c.ID, c.Members = 0, founders
		}})
		for _, place := range e.Members() {
			e.Start(place)
		}
		for _, place := range e.Members() {
			if e.Ready(place); e.ID(place) != place {
				t.Errorf("the founder in place %d is member %d", place, e.ID(place))
			}
		}
		if id := e.ID(embedkit.Joined(e, 1)[0]); id != 4 {
			t.Errorf("the first that joins is member %d", id)
		}
	})
}

// M22: Admit may refuse a node, which is told why and asks again.
func TestJoin_AdmitRefuses(t *testing.T) {
	t.Parallel()
	var open atomic.Bool
	var seen atomic.Pointer[embed.Candidate]
	embedkit.Growing(t, 1, func(c *embed.Config) {
		embedkit.Named(c)
		c.Zone = "mars"
		c.Admit = func(_ context.Context, who embed.Candidate) error {
			if seen.Store(&who); !open.Load() {
				return errors.New("there is no rack on " + who.Zone)
			}
			return nil
		}
	}, func(t *testing.T, e *embedtest.Ensemble) {
		embedkit.Founded(e)
		two := e.Join()
		joining(e, two, "Config.Admit of member 1 refuses it: there is no rack on mars")
		unchanged(t, e, 1, 1)
		if got, want := *seen.Load(), (embed.Candidate{Name: "member-2", Zone: "mars", Address: "member-2.test:1"}); got != want {
			t.Errorf("Admit was asked about %+v, want %+v", got, want)
		}
		open.Store(true)
		e.Ready(two)
	})
}

// An observer never votes, however many voters are missing. It serves like any member.
func TestJoin_AnObserverStaysOne(t *testing.T) {
	t.Parallel()
	var observer bool
	embedkit.Growing(t, 1, func(c *embed.Config) { c.Observer = observer }, func(t *testing.T, e *embedtest.Ensemble) {
		observer = true
		embedkit.Joined(e, 2)
		<-time.After(time.Minute)
		embedkit.Voting(e, 1, 1)
		observer = false
		embedkit.Joined(e, 2)
		embedkit.Voting(e, 1, 1, 4, 5)
		for _, m := range e.Node(1).Members() {
			if m.Observer != (m.ID == 2 || m.ID == 3) {
				t.Errorf("member %d: observer is %v", m.ID, m.Observer)
			}
		}
		_, err := e.Session(2, embed.SessionOptions{}).Create(bounded(t), "/by-an-observer", nil, embed.Persistent)
		must(t, err)
	})
}

// M16: a new voter comes from the zone that has the fewest, though another member is first by its
// id.
func TestJoin_VotersSpreadOverZones(t *testing.T) {
	t.Parallel()
	zones := map[string]string{"member-1.test:1": "a", "member-2.test:1": "b", "member-3.test:1": "c", "member-4.test:1": "a", "member-5.test:1": "c"}
	embedkit.Growing(t, 3, func(c *embed.Config) { c.Zone = zones[c.Advertise] }, func(t *testing.T, e *embedtest.Ensemble) {
		embedkit.Founded(e)
		embedkit.Joined(e, 2)
		<-time.After(time.Minute)
		must(t, e.Node(3).Leave(bounded(t)))
		embedkit.Voting(e, 1, 1, 2, 5)
	})
}

// M22: with TLS a node joins if an authority of the members has signed its certificate. A stranger
// is told why it gets no answer, and is never asked about.
func TestJoin_TLS(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ours, others := embedkit.NewAuthority(t, "ours"), embedkit.NewAuthority(t, "others")
		certified := func(by, trusts embedkit.Authority) *embed.TLS {
			cert := by.Issue(t, func(c *x509.Certificate) { c.IPAddresses, c.DNSNames = nil, []string{"*.test"} })
			return &embed.TLS{Config: &tls.Config{Certificates: []tls.Certificate{cert}, RootCAs: trusts.Pool, ClientCAs: trusts.Pool}}
		}
		show, asked := certified(ours, ours), 0
		e := embedtest.New(t, 1, embedtest.Options{Config: func(c *embed.Config) {
			c.TLS = show
			c.Admit = func(context.Context, embed.Candidate) error { asked++; return nil }
		}})
		embedkit.Founded(e)
		for _, stranger := range []*embed.TLS{nil, certified(others, ours), certified(others, others)} {
			show = stranger
			joining(e, e.Join(), "no answer from member-1.test:1: ")
		}
		unchanged(t, e, 1, 1)
		if asked > 0 {
			t.Errorf("Admit was asked %d times about strangers", asked)
		}
		show = certified(ours, ours)
		embedkit.Joined(e, 1)
		if asked != 1 {
			t.Errorf("Admit was asked %d times about the one that joined", asked)
		}
	})
}

// M26: two nodes that each found alone are two ensembles, which never mix. A node whose seeds lead
// to both joins neither, and says what to change.
func TestJoin_SeedsOfTwoEnsembles(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := embedtest.New(t, 2, embedtest.Options{Stopped: true, Config: func(c *embed.Config) {
			if c.ID != 0 { // alone among its founders, and knows no seed but itself
				c.Members, c.Join, c.ID = map[embed.MemberID]string{1: c.Advertise}, []string{c.Advertise}, 1
			}
		}})
		for _, place := range e.Members() {
			e.Start(place)
			e.Ready(place)
		}
		lineages := func() bool {
			return !slices.ContainsFunc(e.Members(), func(place embed.MemberID) bool { return e.Node(place).Members()[0].Name == "" })
		}
		e.Until("both to be founded", lineages)
		_, err := e.Session(1, embed.SessionOptions{}).Create(bounded(t), "/first", nil, embed.Persistent)
		must(t, err)
		joining(e, e.Join(), "the seeds are members of different ensembles: member 1 at member-")
		joining(e, 3, "set Join to members of one of them")
		unchanged(t, e, 1, 1)
		unchanged(t, e, 2, 1)
		if _, found, err := e.Session(2, embed.SessionOptions{}).Exists(bounded(t), "/first"); found || err != nil {
			t.Errorf("what one ensemble has is in the other: %v, %v", found, err)
		}
	})
}

// M104: a name that stands for the seeds also has the address of another ensemble's member. Who has its
// own ensemble's name finds that one, to join it or to found it.
func TestJoin_AnAddressOfAnotherEnsembleAmongTheSeeds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := embedtest.New(t, 4, embedtest.Options{Stopped: true, Config: func(c *embed.Config) {
			if c.ID == 1 {
				c.Ensemble, c.Members, c.Join = "bills", map[embed.MemberID]string{1: c.Advertise}, []string{c.Advertise}
				return
			}
			c.Ensemble = "orders"
			delete(c.Members, 1)
		}})
		for _, place := range e.Members() {
			e.Start(place)
		}
		for _, place := range e.Members() {
			e.Ready(place)
		}
		e.Until("the table of members", func() bool { return e.Node(2).Members()[0].Name != "" && e.Node(1).Members()[0].Name != "" })
		five := e.Join()
		e.Ready(five)
		unchanged(t, e, 1, 1)
		if got := len(e.Node(2).Members()); got != 4 {
			t.Errorf("there are %d members", got)
		}
	})
}

// M17: an address that a member is said to have may be that of another ensemble's member, with the
// same id. Nobody is admitted there by mistake, and nobody is removed.
func TestJoin_AnAddressOfAnotherEnsemble(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		strays := false
		join := map[string]string{"member-3.test:1": "member-1.test:1", "member-4.test:1": "member-2.test:1", "member-5.test:1": "member-1.test:1"}
		e := embedtest.New(t, 2, embedtest.Options{Stopped: true, Config: func(c *embed.Config) {
			own := c.Advertise
			if seed := join[own]; seed != "" {
				c.Join = []string{seed}
				return
			}
			c.Members, c.Join, c.ID = map[embed.MemberID]string{1: own}, []string{own}, 1
			if strays && own == "member-1.test:1" {
				c.Advertise = "member-2.test:1"
			}
		}})
		for _, place := range e.Members() {
			e.Start(place)
			e.Ready(place)
		}
		embedkit.Joined(e, 2) // member 2 of each
		unchanged(t, e, 1, 1, 2)
		unchanged(t, e, 2, 1, 2)
		e.Kill(1)
		strays = true
		e.Restart(1)
		e.Until("the wrong address", func() bool { return e.Node(3).Members()[0].Address == "member-2.test:1" })

		joining(e, e.Join(), "member-2.test:1 was said to lead: member 1 at member-2.test:1 is of lineage")
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		if err := e.Node(3).RemoveMember(ctx, 2); err == nil {
			t.Error("the removal was recorded somewhere")
		}
		unchanged(t, e, 2, 1, 2)
		if m := e.Node(2).Members()[1]; m.Leaving != "" {
			t.Errorf("the other ensemble's member 2 is to go: %s", m.Leaving)
		}
	})
}

// M25: the directory of a member that somebody removed is never let in again, and says so. Emptied,
// it is a new member; the old id is not given again.
func TestRemoveMember_TheDirectoryStaysOut(t *testing.T) {
	t.Parallel()
	embedkit.Growing(t, 3, nil, func(t *testing.T, e *embedtest.Ensemble) {
		embedkit.Founded(e)
		must(t, e.Node(1).RemoveMember(bounded(t), 2))
		<-e.Node(2).Done()
		e.Kill(2)
		for range 2 { // what it was told last time is in the directory
			n, err := e.TryStart(2)
			if err == nil {
				err = n.Err()
				_ = n.Close()
			}
			if err == nil || !strings.Contains(err.Error(), "removed") || !strings.Contains(err.Error(), "empty") {
				t.Errorf("the removed directory starts with %v", err)
			}
		}
		embedkit.Voting(e, 1, 1, 3)
		e.Wipe(2)
		e.Restart(2)
		if id := e.ID(2); id != 4 {
			t.Errorf("it has come back as member %d", id)
		}
	})
}
