package embed_test

import (
	"context"
	"errors"
	"io"
	"reflect"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/claim"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/internal/embedkit"
	"github.com/vivarium-go/vivarium/engine"
	"github.com/vivarium-go/vivarium/internal/testkit"
)

// After a node has failed or is closed, everything that it says must be true. It leads nothing and
// knows no leader. Nobody can do anything through it, and its status is the last that it had.
func TestOver_EveryAnswerIsTrue(t *testing.T) {
	t.Parallel()
	ends := map[string]struct {
		end  func(t *testing.T, o *over)
		want error
	}{
		"failed": {func(t *testing.T, o *over) { o.failDisk(t) }, embed.ErrFailed},
		"closed": {func(t *testing.T, o *over) { must(t, o.node.Close()) }, embed.ErrClosed},
		"failed and closed": {func(t *testing.T, o *over) {
			o.failDisk(t)
			must(t, o.node.Close())
		}, embed.ErrFailed},
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testkit.Bubble(t, func(t *testing.T) {
				o := newOver(t)
				end.end(t, o)
				o.checkNode(t, end.want)
				o.checkSession(t, end.want)
				o.checkHeld(t, end.want)
				o.checkEngine(t, end.want)
				for _, s := range o.before.Shards {
					o.ens.Until("observers to be told", func() bool { return o.changeOf(s.Shard).Leader == 0 })
				}
			})
		})
	}
}

// An over is a node that led everything, and what its users had of it.
type over struct {
	ens    *embedtest.Ensemble
	node   *embed.Node
	engine *engine.Engine
	before embed.Status // when it led, after the last write

	session *embed.Session
	watch   *embed.Watch
	claim   *claim.Claim
	tenure  *claim.Tenure

	mu      sync.Mutex
	changes map[int]embed.LeaderChange // the newest of each shard
}

func newOver(t *testing.T) *over {
	t.Helper()
	ctx := bounded(t)
	o := &over{changes: make(map[int]embed.LeaderChange)}
	o.ens = embedtest.New(t, 3, embedtest.Options{
		Config: func(c *embed.Config) {
			if c.ID == 1 {
				c.Events.LeaderChanged = o.changed
			}
		},
	})
	o.ens.TransferLeadership(1)
	o.node = o.ens.Node(1)
	o.engine = embedkit.EngineOf(o.node)
	o.session = o.ens.Session(1, embed.SessionOptions{Timeout: time.Minute})
	var err error
	_, err = o.session.Create(ctx, "/a", []byte("data"), embed.Persistent)
	must(t, err)
	o.watch, err = o.session.Watch(ctx, "/a", embed.WatchPersistent)
	must(t, err)
	o.claim, err = claim.New(ctx, o.session, embed.OpCreate("/claim", nil, embed.Ephemeral))
	must(t, err)
	_, err = o.claim.Created(ctx)
	must(t, err)
	o.tenure, err = o.claim.Hold(false)
	must(t, err)
	o.ens.Until("member 1 to lead all shards", func() bool { // a busy machine may have moved some meanwhile
		o.ens.TransferLeadership(1)
		o.before = o.node.Status()
		return !slices.ContainsFunc(o.before.Shards, func(s embed.ShardStatus) bool { return !o.before.Leading(s) })
	})
	return o
}

func (o *over) changed(c embed.LeaderChange) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.changes[c.Shard] = c
}

func (o *over) changeOf(shard int) embed.LeaderChange {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.changes[shard]
}

// failDisk makes the node's disk fail during a write.
func (o *over) failDisk(t *testing.T) {
	t.Helper()
	o.ens.Faults(1).SetDisk(embedtest.Disk{Err: syscall.EIO})
	if _, err := o.session.Create(bounded(t), "/lost", nil, embed.Persistent); err == nil {
		t.Error("a write on a failed disk was acknowledged")
	}
	<-o.node.Done()
}

// checkNode calls every method of the node.
func (o *over) checkNode(t *testing.T, want error) {
	t.Helper()
	n, ctx := o.node, bounded(t)
	asked := map[string]func(t *testing.T){
		"Status": func(t *testing.T) { o.checkStatus(t) },
		"Peek": func(t *testing.T) {
			_, _, err := n.Peek().Get("/a")
			testkit.WantErr(t, err, want)
		},
		"Ready": func(t *testing.T) { testkit.WantErr(t, n.Ready(ctx), want) },
		"NewSession": func(t *testing.T) {
			_, err := n.NewSession(ctx, embed.SessionOptions{})
			testkit.WantErr(t, err, want)
		},
		"Backup": func(t *testing.T) {
			_, err := n.Backup(ctx, io.Discard)
			testkit.WantErr(t, err, want)
		},
		"Health": func(t *testing.T) {
			if h := n.Health(); h.Ready || !errors.Is(h.Err, want) {
				t.Errorf("%+v", h)
			}
		},
		"Recent": func(t *testing.T) {
			all := n.Recent(0)
			if last := n.Recent(1); len(last) != 1 || last[0] != all[len(all)-1] {
				t.Errorf("the newest of %v is %v", all, last)
			}
		},
		"ReloadTLS": func(t *testing.T) {
			if changed, err := n.ReloadTLS(); changed || err != nil {
				t.Errorf("without files: %v, %v", changed, err)
			}
		},
		"Samples": func(t *testing.T) {
			for s := range n.Samples() {
				switch s.Name {
				case "vivarium_ready", "vivarium_shard_has_leader", "vivarium_shard_leads":
					if s.Value != 0 {
						t.Errorf("%s is %v", s.Name, s.Value)
					}
				case "vivarium_failed":
					if failed := want == embed.ErrFailed; (s.Value == 1) != failed {
						t.Errorf("%s is %v", s.Name, s.Value)
					}
				}
			}
		},
		"Leave":        func(t *testing.T) { testkit.WantErr(t, n.Leave(ctx), want) },
		"RemoveMember": func(t *testing.T) { testkit.WantErr(t, n.RemoveMember(ctx, 2), want) },
		"Members": func(t *testing.T) {
			if list := n.Members(); len(list) == 0 {
				t.Error("there are none")
			}
		},
		"RaiseLevel":         func(t *testing.T) { testkit.WantErr(t, n.RaiseLevel(ctx), want) },
		"TransferLeadership": func(t *testing.T) { testkit.WantErr(t, n.TransferLeadership(1, 2), want) },
		"Done": func(t *testing.T) {
			select {
			case <-n.Done():
			default:
				t.Error("it is not closed")
			}
		},
		"Err": func(t *testing.T) {
			if err := n.Err(); (err != nil) != (want == embed.ErrFailed) || err != nil && !errors.Is(err, syscall.EIO) {
				t.Errorf("%v", err)
			}
		},
		"Close":    nil, // it ends the node; called below, and only for a node that failed
		"Shutdown": nil,
	}
	everyMethod(t, n, asked)
}

func (o *over) checkStatus(t *testing.T) {
	now := o.node.Status()
	for i, s := range now.Shards {
		if now.Leading(s) || s.Leader != 0 {
			t.Errorf("member 1 says that member %d leads shard %d", s.Leader, s.Shard)
		}
		if was := o.before.Shards[i]; s.Applied < was.Applied || s.Zxid < was.Zxid || s.Term < was.Term {
			t.Errorf("%+v, it was %+v", s, was)
		}
	}
}

// checkSession calls every method of the session.
func (o *over) checkSession(t *testing.T, want error) {
	t.Helper()
	s, ctx := o.session, bounded(t)
	fails := func(err error) func(t *testing.T) { return func(t *testing.T) { testkit.WantErr(t, err, want) } }
	_, _, acl := s.ACL(ctx, "/a")
	_, _, before := claim.Before(ctx, s, "/a/b-0000000001")
	testkit.WantErr(t, before, want)
	_, _, children := s.Children(ctx, "/")
	made, err := claim.New(ctx, s, embed.OpCreate("/b", nil, embed.Ephemeral))
	must(t, err)
	_, err = made.Created(ctx)
	testkit.WantErr(t, err, want)
	_, count := s.CountDescendants(ctx, "/")
	_, create := s.Create(ctx, "/b", nil, embed.Persistent)
	await := s.Await(ctx, "/a", 1<<60)
	_, page := s.Page(ctx, "/", "", 1)
	_, put := s.Put(ctx, "/a", nil)
	_, walked := embedkit.Walk(ctx, s, "/a")
	var walkedWith error
	for _, walkedWith = range s.WalkWith(ctx, "/a", embed.WalkOptions{Depth: 1}) {
	}
	_, watchWith := s.WatchWith(ctx, "/a", embed.WatchOnce, embed.WatchOptions{})
	_, _, createWith := s.CreateWith(ctx, "/b", nil, embed.CreateOptions{})
	_, ephemerals := s.Ephemerals(ctx, "/")
	_, _, exists := s.Exists(ctx, "/a")
	_, _, get := s.Get(ctx, "/a")
	_, member := s.Member(ctx, s.ID())
	_, multi := s.Multi(ctx)
	_, set := s.Set(ctx, "/a", nil, embed.AnyVersion)
	_, setACL := s.SetACL(ctx, "/a", embed.OpenACL(), embed.AnyVersion)
	_, submit := s.Submit(ctx, embed.OpSet("/a", nil, embed.AnyVersion)).Result()
	_, sync := s.Sync(ctx, "/")
	_, syncOne := s.Sync(ctx, "/a")
	_, watch := s.Watch(ctx, "/a", embed.WatchOnce)
	everyMethod(t, s, map[string]func(t *testing.T){
		"Await": fails(await), "Page": fails(page), "Put": fails(put), "Walk": fails(walked), "WalkWith": fails(walkedWith), "WatchWith": fails(watchWith),
		"ACL": fails(acl), "Children": fails(children),
		"CountDescendants": fails(count), "Create": fails(create), "CreateWith": fails(createWith),
		"Delete": fails(s.Delete(ctx, "/a", embed.AnyVersion)), "Ephemerals": fails(ephemerals), "Err": fails(s.Err()),
		"Exists": fails(exists), "Get": fails(get), "Member": fails(member), "Multi": fails(multi), "Set": fails(set),
		"SetACL": fails(setACL), "Submit": fails(submit), "Sync": func(t *testing.T) { testkit.WantErr(t, sync, want); testkit.WantErr(t, syncOne, want) },
		"Watch":   fails(watch),
		"Context": fails(context.Cause(s.Context())),
		"State": func(t *testing.T) {
			if now, _ := s.State(); now != embed.Closed {
				t.Errorf("it is %v", now)
			}
		},
		"Done": func(t *testing.T) { <-s.Done() },
		"Close": func(t *testing.T) {
			must(t, s.Close()) // it has ended
		},
		"ID": nil, "Root": nil, "Timeout": nil, // never change
	})
}

// checkHeld checks what lasts as long as the session.
func (o *over) checkHeld(t *testing.T, want error) {
	t.Helper()
	for range o.watch.Events() {
	}
	testkit.WantErr(t, o.watch.Err(), want)
	testkit.WantErr(t, o.claim.Err(), want)
	testkit.WantErr(t, o.tenure.Err(), want)
	testkit.WantErr(t, context.Cause(o.tenure.Context()), want)
	_, err := o.claim.Hold(true)
	testkit.WantErr(t, err, want)
}

// checkEngine checks what monitors and the gateway ask for.
func (o *over) checkEngine(t *testing.T, want error) {
	t.Helper()
	if _, err := o.engine.Tables.Census(bounded(t)); !errors.Is(err, want) {
		t.Errorf("Census: %v, want %v", err, want)
	}
	if _, _, err := o.engine.Tables.Count(bounded(t)); !errors.Is(err, want) {
		t.Errorf("Count: %v, want %v", err, want)
	}
	if since, leads := o.engine.LeadsSince(); leads {
		t.Errorf("it leads since %v", since)
	}
	if n := o.engine.Peers(); n != 0 {
		t.Errorf("%d members are connected to it", n)
	}
	if n := o.engine.Tables.Znodes(); n < 5 { // three that always exist, and two of the test
		t.Errorf("%d znodes", n)
	}
	if n := o.engine.Tables.Size(); n < len("data") {
		t.Errorf("%d bytes", n)
	}
	if o.engine.Tables.Visible() == 0 {
		t.Error("nothing is visible")
	}
	must(t, o.node.Shutdown(bounded(t)))
	must(t, o.node.Close())
	o.checkStatus(t)
}

// The zero Status leads nothing.
func TestStatus_LeadingOfTheZeroValueIsFalse(t *testing.T) {
	if (embed.Status{}).Leading(embed.ShardStatus{}) {
		t.Error("it leads")
	}
}

// everyMethod checks each method of v. A method with nil needs no check.
func everyMethod(t *testing.T, v any, asked map[string]func(t *testing.T)) {
	t.Helper()
	for m := range reflect.TypeOf(v).Methods() {
		check, ok := asked[m.Name]
		if !ok {
			t.Errorf("what does %T.%s say once the node is over?", v, m.Name)
		}
		if check != nil {
			t.Logf("%T.%s:", v, m.Name) // errors follow
			check(t)
		}
		delete(asked, m.Name)
	}
	for name := range asked {
		t.Errorf("%T has no method %s", v, name)
	}
}
