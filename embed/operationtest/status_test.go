package operationtest

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/internal/inside"
)

// Status is true of a node that has failed and of one that is closed: it leads nothing and knows no
// leader, and every other field is as it was.
func TestStatus_OfANodeThatIsOver(t *testing.T) {
	for name, end := range map[string]func(e *embedtest.Ensemble, n *embed.Node){
		"failed":            func(e *embedtest.Ensemble, n *embed.Node) { e.Kill(1); <-n.Done() },
		"failed and closed": func(e *embedtest.Ensemble, n *embed.Node) { e.Kill(1); <-n.Done(); _ = n.Close() },
		"closed":            func(e *embedtest.Ensemble, n *embed.Node) { e.Stop(1) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ens := embedtest.New(t, 3, embedtest.Options{Config: func(c *embed.Config) {
					c.Shards, c.Inside = 2, &inside.Seams{Next: c.ID != 3}
				}})
				ens.TransferLeadership(1)
				s := ens.Session(1, embed.SessionOptions{})
				_, err := s.Create(bounded(t), "/a", nil, embed.Persistent)
				must(t, err)
				for _, z := range []struct{ path, data string }{
					{"/zookeeper/quota/a", ""}, {"/zookeeper/quota/a/zookeeper_limits", "count=1,bytes=-1"},
					{"/zookeeper/quota/a/zookeeper_stats", ""}, {"/a/b", ""},
				} {
					_, err = s.Create(bounded(t), z.path, []byte(z.data), embed.Persistent)
					must(t, err)
				}
				must(t, s.Close())
				<-time.After(10 * time.Second)
				n := ens.Node(1)
				before := n.Status()
				for i, v := 0, reflect.ValueOf(before); i < v.NumField(); i++ {
					if f := v.Type().Field(i).Name; v.Field(i).IsZero() && f != "Joining" {
						t.Errorf("the test does not set %s", f)
					}
				}
				over := map[string]bool{}
				for _, shard := range before.Shards {
					for i, v := 0, reflect.ValueOf(shard); i < v.NumField(); i++ {
						over[v.Type().Field(i).Name] = over[v.Type().Field(i).Name] || !v.Field(i).IsZero()
					}
				}
				for field, set := range over {
					if !set {
						t.Errorf("the test does not set %s of a shard", field)
					}
				}
				if !before.Leading(before.Shards[0]) {
					t.Fatalf("it leads nothing: %+v", before)
				}
				end(ens, n)
				after := n.Status()
				for i := range after.Shards {
					if after.Leading(after.Shards[i]) || after.Shards[i].Leader != 0 {
						t.Errorf("shard %d: it knows leader %d", i+1, after.Shards[i].Leader)
					}
					after.Shards[i].Leader = before.Shards[i].Leader
					if term := after.Shards[i].Term; term < before.Shards[i].Term {
						t.Errorf("shard %d: term %d, it was %d", i+1, term, before.Shards[i].Term)
					}
					after.Shards[i].Term = before.Shards[i].Term // closing transfers the leadership
					if applied := after.Shards[i].Applied; applied < before.Shards[i].Applied || applied > before.Shards[i].Applied+10 {
						t.Errorf("shard %d: applied %d, it was %d", i+1, applied, before.Shards[i].Applied)
					}
					after.Shards[i].Applied = before.Shards[i].Applied
				}
				if fmt.Sprintf("%+v", after) != fmt.Sprintf("%+v", before) {
					t.Errorf("%+v, it was %+v", after, before)
				}
			})
		})
	}
}

// A node that has yet to join says what it waits for, and waits for nothing once it is closed.
func TestStatus_OfANodeThatNeverJoined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ens := embedtest.New(t, 1, embedtest.Options{Stopped: true, Config: func(c *embed.Config) { c.ID, c.Members, c.Advertise = 0, nil, "member-1.test:1" }})
		n := ens.Start(1)
		<-time.After(10 * time.Second)
		if s := n.Status(); s.Member != 0 || s.Joining == "" || strings.Contains(s.Joining, "closed") {
			t.Errorf("%+v", s)
		}
		ens.Stop(1)
		if s := n.Status(); s.Member != 0 || s.Joining != "" || len(s.Shards) == 0 || s.Shards[0].Leader != 0 {
			t.Errorf("closed: %+v", s)
		}
	})
}
