package promisetest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/claim"
	"github.com/vivarium-go/vivarium/embed/election"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/internal/embedkit"
	"github.com/vivarium-go/vivarium/embed/internal/inside"
	"github.com/vivarium-go/vivarium/embed/lock"
	"github.com/vivarium-go/vivarium/embed/metrics"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/internal/testkit/shardsflag"
	"github.com/vivarium-go/vivarium/storage/disk"
)

// use does a little of everything on a node.
func use(t *testing.T, n *embed.Node) {
	t.Helper()
	ctx := bounded(t)
	must(t, n.Ready(ctx))
	s, err := n.NewSession(ctx, embed.SessionOptions{})
	must(t, err)
	w, err := s.Watch(ctx, "/locks", embed.WatchRecursive)
	must(t, err)
	must(t, lock.Do(ctx, n, "/locks/x", func(context.Context, lock.Token) error { return nil }))
	<-w.Events()
	own := fmt.Sprint("/locks/own-", n.Status().Member)
	kept, err := lock.NewMutex(s, own).Lock(ctx)
	must(t, err)
	waiting, cancel := context.WithCancel(ctx)
	ended := make(chan error)
	go func() {
		_, err := election.New(s, own).Campaign(waiting, nil)
		ended <- err
	}()
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled campaign: %v", err)
	}
	must(t, kept.Err()) // left to Close, like the session and its watch
}

// A service that starts and stops its node again and again keeps nothing of it. A node that is
// alone opens no port.
//
// (etcd#6733: sockets were left after a Close; zookeeper#1710 likewise.)
//
// This needs real time: it is about real sockets and files.
func TestGuarantee_GoodGuest(t *testing.T) {
	rounds := 8 // whatever a round leaves shows after one
	if testkit.Night() {
		rounds = 50
	}
	once := func(dir string) {
		var leaders atomic.Int32
		n, err := embed.Start(embed.Config{
			Dir: dir, Shards: shardsflag.N, Tick: 5 * time.Millisecond, RequestTimeout: time.Minute, SessionTimeout: time.Minute, Logger: embedkit.Quiet,
			Events: embed.Events{LeaderChanged: func(embed.LeaderChange) { leaders.Add(1) }},
		})
		must(t, err)
		use(t, n)
		until(t, "a node alone to have no socket", func() bool { // those of others may be on their way out
			return !slices.ContainsFunc(testkit.OpenFiles(t), func(f string) bool { return strings.HasPrefix(f, "socket:") })
		})
		must(t, n.Close())
	}
	three := func() {
		nodes := embedkit.StartTCP(t, "127.0.0.1", 3, func(c *embed.Config) {
			c.Dir, c.SessionTimeout = t.TempDir(), time.Minute // longer than a busy machine stands still
		})
		for _, n := range nodes {
			use(t, n)
		}
		embedkit.CloseAll(t, nodes)
	}
	dir := t.TempDir()
	once(dir) // dragonboat and the runtime keep some things for the life of the process
	three()
	goroutines, open := runtime.NumGoroutine(), testkit.OpenFiles(t)
	for i := range rounds {
		once(dir)
		if i%4 == 0 {
			three()
		}
	}
	// Goroutines that were told to end may still be on their way.
	t.Cleanup(func() {
		if t.Failed() {
			stacks := make([]byte, 1<<20)
			t.Logf("%d goroutines, %d before\n%s", runtime.NumGoroutine(), goroutines, stacks[:runtime.Stack(stacks, true)])
			t.Logf("open: %v\nbefore: %v", testkit.OpenFiles(t), open)
		}
	})
	until(t, "the files to be closed", func() bool { return len(testkit.OpenFiles(t)) <= len(open) })
	until(t, "the goroutines to end", func() bool { return runtime.NumGoroutine() <= goroutines })
}

var faults = map[string]struct {
	op   disk.Op
	part string
	err  error
}{
	"the log cannot be written":   {disk.OpWrite, "/raft/", syscall.EIO},
	"the log cannot be synced":    {disk.OpSync, "/raft/", syscall.EIO},
	"the disk is full":            {disk.OpWrite, "/", syscall.ENOSPC},
	"the image cannot be created": {disk.OpCreate, "/image/", syscall.EROFS},
}

// runOnDisk is run for a test whose disk has that fault. A member waits for room on a full disk
// under mutexes of dragonboat, so that needs real time.
func runOnDisk(t *testing.T, name string, fault error, test func(t *testing.T)) {
	t.Helper()
	if !errors.Is(fault, syscall.ENOSPC) {
		run(t, name, test)
		return
	}
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		test(t)
	})
}

// C1.1, C1.3, C1.4: the disk of one of three members fails under load. The process and the other
// two go on. The failed member says so to everyone who waits, acknowledges nothing that it has not
// stored, can be closed, and rejoins once the disk works.
//
// (etcd#10588, etcd#10591: a full disk ended the process that etcd was embedded in; etcd#9373: a
// panic that nobody could recover.)
func TestGuarantee_GoodGuest_FailedDisk(t *testing.T) {
	embedkit.MembersOnly(t, "a client's session goes on elsewhere when its member fails")
	const victim = embed.MemberID(2)
	for name, fault := range faults {
		test := func(t *testing.T, leader embed.MemberID) {
			var broken embedkit.FaultyDisk
			ens := embedtest.New(t, 3, embedtest.Options{Config: func(c *embed.Config) {
				if c.ID == victim {
					c.Inside = &inside.Seams{Fault: broken.Ask, Lack: embedkit.ShortPatience}
				}
			}})
			ens.TransferLeadership(leader)
			ctx := bounded(t)
			n := ens.Node(victim)
			s := ens.Session(victim, embed.SessionOptions{Timeout: time.Minute})
			hold, err := lock.NewMutex(s, "/lock").Lock(ctx)
			must(t, err)
			watch, err := s.Watch(ctx, "/lock", embed.WatchPersistent)
			must(t, err)
			_, err = s.Create(ctx, "/w", nil, embed.Persistent)
			must(t, err)

			writes := &outcomes{byPath: make(map[string]error)}
			var writers sync.WaitGroup
			for i := range 8 {
				writers.Go(func() { writes.until(ctx, n.Done(), s, i) })
			}
			writes.reach(t, 50)
			broken.Fails(fault.op, fault.part, fault.err)
			if fault.part == "/image/" {
				_ = ens.Snapshot(victim)
			}
			select {
			case <-n.Done():
			case <-ctx.Done():
				t.Fatal("the node has not failed")
			}
			writers.Wait()

			if !errors.Is(n.Err(), fault.err) {
				t.Errorf("Err is %v, want the cause %v", n.Err(), fault.err)
			}
			if err := n.Ready(ctx); !errors.Is(err, embed.ErrFailed) || !errors.Is(err, fault.err) {
				t.Errorf("Ready: %v", err)
			}
			for what, err := range map[string]error{"hold": hold.Err(), "hold's context": context.Cause(hold.Context()), "session": s.Err(), "session's context": context.Cause(s.Context())} {
				if !errors.Is(err, embed.ErrFailed) {
					t.Errorf("%s: %v", what, err)
				}
			}
			for range watch.Events() { // queued events stay readable, then the stream ends
			}
			if !errors.Is(watch.Err(), embed.ErrFailed) {
				t.Errorf("watch: %v", watch.Err())
			}

			// The others do not wait for the failed member.
			ens.Until("the others to agree on a leader among them", func() bool { return ens.Leader() != victim })
			embedkit.Write(t, ens.Node(1), "/after")
			writes.check(t, ens.Node(3))

			must(t, n.Close())
			broken.Set(nil)
			ens.Kill(victim) // removes the closed node from the ensemble
			ens.Restart(victim)
			embedkit.Has(t, ens.Node(victim), "/after")
			writes.check(t, ens.Node(victim))
		}
		runOnDisk(t, "of the leader, "+name, fault.err, func(t *testing.T) { test(t, victim) })
		runOnDisk(t, "of a follower, "+name, fault.err, func(t *testing.T) { test(t, 1) })
	}
}

// C1.9: one read of Raft's log fails while the leader reads it for a member that lags. dragonboat
// would panic on a goroutine of its own, so that goroutine stays. The process goes on, Close says
// what it leaves behind, and the member rejoins.
//
// This needs real time: in virtual time no goroutine may stay.
func TestGuarantee_GoodGuest_FailedRead(t *testing.T) {
	embedkit.MembersOnly(t, "a client's session goes on elsewhere when its member fails")
	goroutines, open := runtime.NumGoroutine(), len(testkit.OpenFiles(t))
	ens := embedtest.New(t, 3, embedtest.Options{Config: func(c *embed.Config) {
		embedkit.Patient(c)
		c.Inside = &inside.Seams{Close: time.Second}
	}})
	ens.TransferLeadership(1)
	n, s := ens.Node(1), ens.Session(1, embed.SessionOptions{})
	ens.Isolate(3)
	for _, place := range embedkit.Places() {
		for i := range 300 {
			p := fmt.Sprintf("%s/%d", place, i)
			_, err := s.Put(bounded(t), p, []byte("data of "+p))
			must(t, err)
		}
	}
	ens.Faults(1).SetDisk(embedtest.Disk{Err: syscall.EIO, On: embedtest.Reads})
	ens.HealAll()
	select {
	case <-n.Done():
	case <-bounded(t).Done():
		t.Fatal("the node has not failed")
	}
	// It leaves nothing behind if another read failed first.
	if err := ens.TryKill(1); err != nil && !strings.Contains(err.Error(), "stay until the process ends") {
		t.Errorf("Close: %v", err)
	}
	ens.Faults(1).SetDisk(embedtest.Disk{})
	ens.Restart(1)
	for _, p := range embedkit.Places() {
		embedkit.Has(t, ens.Node(1), p+"/299")
	}
	for _, id := range ens.Members() {
		ens.Stop(id)
	}
	until(t, "nearly all goroutines to end", func() bool { return runtime.NumGoroutine() <= goroutines+30 })
	until(t, "nearly all files to be closed", func() bool { return len(testkit.OpenFiles(t)) <= open+20 })
}

// outcomes are the outcomes of many creates.
type outcomes struct {
	mu     sync.Mutex
	byPath map[string]error
}

// until creates znodes until the node has ended.
func (o *outcomes) until(ctx context.Context, over <-chan struct{}, s *embed.Session, writer int) {
	for i := 0; ; i++ {
		path := fmt.Sprintf("/w/%d-%d", writer, i)
		_, err := s.Create(ctx, path, nil, embed.Persistent)
		o.mu.Lock()
		o.byPath[path] = err
		o.mu.Unlock()
		select {
		case <-over:
			return
		case <-time.After(time.Millisecond): // virtual time must pass
		}
	}
}

func (o *outcomes) reach(t *testing.T, n int) {
	t.Helper()
	until(t, "some writes", func() bool {
		o.mu.Lock()
		defer o.mu.Unlock()
		return len(o.byPath) >= n
	})
}

// check compares what callers were told with what exists.
func (o *outcomes) check(t *testing.T, n *embed.Node) {
	t.Helper()
	ctx := bounded(t)
	s, err := n.NewSession(ctx, embed.SessionOptions{})
	must(t, err)
	defer s.Close()
	_, err = s.Sync(ctx, "/")
	must(t, err)
	names, _, err := s.Children(ctx, "/w")
	must(t, err)
	there := make(map[string]bool)
	for _, name := range names {
		there["/w/"+name] = true
	}
	for path, err := range o.byPath {
		switch {
		case err == nil && !there[path]:
			t.Errorf("%s was acknowledged and is lost", path)
		case errors.Is(err, embed.ErrUnknownOutcome):
		case errors.Is(err, embed.ErrFailed):
			if there[path] {
				t.Errorf("%s was said not to be applied and is there", path)
			}
		case err != nil:
			t.Errorf("%s: %v, want ErrUnknownOutcome or ErrFailed", path, err)
		}
	}
}

// If a node is alone, nobody else can have stored what its disk did not. So nothing may be
// acknowledged after the failure.
func TestGuarantee_GoodGuest_FailedDiskAlone(t *testing.T) {
	for name, fault := range faults {
		runOnDisk(t, name, fault.err, func(t *testing.T) {
			var broken embedkit.FaultyDisk
			ens := embedtest.New(t, 1, embedtest.Options{Config: func(c *embed.Config) {
				c.Inside = &inside.Seams{Fault: broken.Ask, Lack: embedkit.ShortPatience}
			}})
			n := ens.Node(1)
			ctx := bounded(t)
			s, err := n.NewSession(ctx, embed.SessionOptions{Timeout: time.Minute})
			must(t, err)
			_, err = s.Create(ctx, "/w", nil, embed.Persistent)
			must(t, err)
			writes := &outcomes{byPath: make(map[string]error)}
			broken.Fails(fault.op, fault.part, fault.err)
			if fault.part == "/image/" {
				_ = ens.Snapshot(1)
			}
			var writers sync.WaitGroup
			for i := range 4 {
				writers.Go(func() { writes.until(ctx, n.Done(), s, i) })
			}
			select {
			case <-n.Done():
			case <-ctx.Done():
				t.Fatal("the node has not failed")
			}
			writers.Wait()
			if !errors.Is(n.Err(), fault.err) {
				t.Errorf("Err is %v, want the cause %v", n.Err(), fault.err)
			}
			must(t, n.Close())
			broken.Set(nil)
			ens.Kill(1) // removes the closed node from the ensemble
			writes.check(t, ens.Restart(1))
		})
	}
}

// Every method of an ended node, and of everything that came from it, answers. Methods that end
// something say that it has ended. The others say why they cannot serve.
//
// (kazoo#482: a lock of a client that was closed hung.)
func TestAfterTheEnd_EveryMethodAnswers(t *testing.T) {
	for name, end := range map[string]struct {
		how  func(*testing.T, *embedtest.Ensemble)
		want error
	}{
		"of a closed node": {func(t *testing.T, e *embedtest.Ensemble) { must(t, e.Node(1).Close()) }, embed.ErrClosed},
		"of a failed node": {func(t *testing.T, e *embedtest.Ensemble) { e.Snapshot(1); e.Kill(1) }, embed.ErrFailed},
		"after a shutdown": {func(t *testing.T, e *embedtest.Ensemble) { must(t, e.Node(1).Shutdown(t.Context())) }, embed.ErrSessionClosed},
	} {
		run(t, name, func(t *testing.T) {
			ens := embedtest.New(t, 1, embedtest.Options{})
			ctx := bounded(t)
			n := ens.Node(1)
			s := ens.Session(1, embed.SessionOptions{})
			w, err := s.Watch(ctx, "/", embed.WatchRecursive)
			must(t, err)
			hold, err := lock.NewMutex(s, "/lock").Lock(ctx)
			must(t, err)
			leader, err := election.New(s, "/election").Campaign(ctx, nil)
			must(t, err)
			candidate, err := election.New(s, "/election").Enter(ctx, nil, election.Options{})
			must(t, err)
			latch := election.NewLatch(ens.Node(1), "/latch", nil, election.Options{})
			made, err := claim.New(ctx, s, embed.OpCreate("/claim", nil, embed.Ephemeral))
			must(t, err)
			_, err = made.Created(ctx)
			must(t, err)
			tenure, err := made.Hold(false)
			must(t, err)
			pending := s.Submit(ctx, embed.OpSet("/lock", nil, embed.AnyVersion))
			_, err = pending.Result()
			must(t, err)

			end.how(t, ens)
			session := end.want
			node := end.want
			if errors.Is(session, embed.ErrSessionClosed) {
				node = embed.ErrClosed
			}
			mutex, elect := lock.NewMutex(s, "/lock"), election.New(s, "/election")
			fn := func(context.Context, lock.Token) error { return errors.New("it ran") }
			answers{t, n}.are(map[string]answer{
				"Close":              {n.Close, nil},
				"Backup":             {func() error { _, err := n.Backup(ctx, io.Discard); return err }, node},
				"Done":               {embedkit.Closed(n.Done()), nil},
				"Err":                {func() error { n.Err(); return nil }, nil}, // the cause, if it failed
				"Health":             {func() error { return n.Health().Err }, node},
				"Recent":             {func() error { n.Recent(1); return nil }, nil},
				"ReloadTLS":          {func() error { _, err := n.ReloadTLS(); return err }, nil},
				"Samples":            {func() error { return metrics.Write(io.Discard, n) }, nil},
				"Leave":              {func() error { return n.Leave(ctx) }, node},
				"Members":            {func() error { n.Members(); return nil }, nil},
				"RemoveMember":       {func() error { return n.RemoveMember(ctx, 1) }, node},
				"Peek":               {func() error { _, _, err := n.Peek().Get("/"); return err }, node},
				"NewSession":         {func() error { _, err := n.NewSession(ctx, embed.SessionOptions{}); return err }, node},
				"RaiseLevel":         {func() error { return n.RaiseLevel(ctx) }, node},
				"Ready":              {func() error { return n.Ready(ctx) }, node},
				"Shutdown":           {func() error { return n.Shutdown(ctx) }, nil},
				"Status":             {func() error { n.Status(); return nil }, nil},
				"TransferLeadership": {func() error { return n.TransferLeadership(1, 1) }, node},
			})
			answers{t, s}.are(map[string]answer{
				"ACL":              {func() error { _, _, err := s.ACL(ctx, "/"); return err }, session},
				"Children":         {func() error { _, _, err := s.Children(ctx, "/"); return err }, session},
				"Close":            {s.Close, nil},
				"Context":          {func() error { return context.Cause(s.Context()) }, session},
				"CountDescendants": {func() error { _, err := s.CountDescendants(ctx, "/"); return err }, session},
				"Create":           {func() error { _, err := s.Create(ctx, "/x", nil, embed.Persistent); return err }, session},
				"CreateWith":       {func() error { _, _, err := s.CreateWith(ctx, "/x", nil, embed.CreateOptions{}); return err }, session},
				"Put":              {func() error { _, err := s.Put(ctx, "/x/y", nil); return err }, session},
				"Ephemerals":       {func() error { _, err := s.Ephemerals(ctx, ""); return err }, session},
				"SetACL":           {func() error { _, err := s.SetACL(ctx, "/x", embed.OpenACL(), embed.AnyVersion); return err }, session},
				"Delete":           {func() error { return s.Delete(ctx, "/x", embed.AnyVersion) }, session},
				"Done":             {embedkit.Closed(s.Done()), nil},
				"Err":              {s.Err, session},
				"Exists":           {func() error { _, _, err := s.Exists(ctx, "/"); return err }, session},
				"Get":              {func() error { _, _, err := s.Get(ctx, "/"); return err }, session},
				"ID":               {func() error { s.ID(); return nil }, nil},
				"Member":           {func() error { _, err := s.Member(ctx, s.ID()); return err }, session},
				"Root":             {func() error { s.Root(); return nil }, nil},
				"Multi": {func() error {
					_, err := s.Multi(ctx, embed.OpCheck("/", embed.AnyVersion))
					_, empty := s.Multi(ctx)
					if !errors.Is(empty, session) {
						t.Errorf("an empty Multi: %v", empty)
					}
					return err
				}, session},
				"Set": {func() error { _, err := s.Set(ctx, "/x", nil, embed.AnyVersion); return err }, session},
				"State": {func() error {
					if state, _ := s.State(); state != embed.Closed {
						return fmt.Errorf("state %v", state)
					}
					return nil
				}, nil},
				"Submit": {func() error { _, err := s.Submit(ctx, embed.OpDelete("/x", 0)).Result(); return err }, session},
				"Sync":   {func() error { _, err := s.Sync(ctx, "/"); return err }, session},
				"Await":  {func() error { return s.Await(ctx, "/lock", 1<<40) }, session},
				"Page":   {func() error { _, err := s.Page(ctx, "/", "", 1); return err }, session},
				"Walk":   {func() error { _, err := embedkit.Walk(ctx, s, "/lock"); return err }, session},
				"WalkWith": {func() error {
					for _, err := range s.WalkWith(ctx, "/lock", embed.WalkOptions{Depth: 1}) {
						return err
					}
					return errors.New("nothing")
				}, session},
				"WatchWith": {func() error {
					_, err := s.WatchWith(ctx, "/", embed.WatchOnce, embed.WatchOptions{Values: true})
					return err
				}, session},
				"Timeout": {func() error { s.Timeout(); return nil }, nil},
				"Watch":   {func() error { _, err := s.Watch(ctx, "/", embed.WatchOnce); return err }, session},
			})
			answers{t, w}.are(map[string]answer{
				"Close":  {w.Close, nil},
				"Err":    {w.Err, session},
				"Events": {drained(w), nil},
				"Zxid":   {func() error { w.Zxid(); return nil }, nil},
			})
			late, err := claim.New(ctx, s, embed.OpCreate("/c", nil, embed.Ephemeral))
			must(t, err)
			if _, err := late.Created(ctx); !errors.Is(err, session) {
				t.Errorf("claim.New: %v, want %v", err, session)
			}
			must(t, late.Release())
			if _, _, err := claim.Before(ctx, s, hold.Path()); !errors.Is(err, session) {
				t.Errorf("claim.Before: %v, want %v", err, session)
			}
			answers{t, made}.are(map[string]answer{
				"Await":   {func() error { _, err := made.Await(ctx); return err }, nil},   // before the end
				"Created": {func() error { _, err := made.Created(ctx); return err }, nil}, // before the end
				"Done":    {embedkit.Closed(made.Done()), nil},
				"Err":     {made.Err, session},
				"Hold":    {func() error { _, err := made.Hold(false); return err }, session},
				"Release": {made.Release, nil},
				"Flush":   {made.Flush, nil}, // there is nothing
			})
			answers{t, tenure}.are(map[string]answer{
				"Context": {func() error { return context.Cause(tenure.Context()) }, session},
				"Done":    {embedkit.Closed(tenure.Done()), nil},
				"End":     {func() error { tenure.End(); return nil }, nil},
				"Err":     {tenure.Err, session},
			})
			answers{t, pending}.are(map[string]answer{
				"Done":   {embedkit.Closed(pending.Done()), nil},
				"Result": {func() error { _, err := pending.Result(); return err }, nil}, // applied before the end
			})
			answers{t, hold}.are(map[string]answer{
				"Context": {func() error { return context.Cause(hold.Context()) }, session},
				"Done":    {embedkit.Closed(hold.Done()), nil},
				"Err":     {hold.Err, session},
				"Path":    {func() error { hold.Path(); return nil }, nil},
				"Release": {hold.Release, nil},
				"Revoked": {func() error { hold.Revoked(); return nil }, nil},
				"Session": {func() error { hold.Session(); return nil }, nil},
				"Token":   {func() error { hold.Token(); return nil }, nil},
			})
			answers{t, leader}.are(map[string]answer{
				"Context":  {func() error { return context.Cause(leader.Context()) }, session},
				"Done":     {embedkit.Closed(leader.Done()), nil},
				"Err":      {leader.Err, session},
				"Path":     {func() error { leader.Path(); return nil }, nil},
				"Proclaim": {func() error { return leader.Proclaim(ctx, nil) }, session},
				"Requeue":  {func() error { _, err := leader.Requeue(ctx); return err }, session},
				"Resign":   {leader.Resign, nil},
				"Session":  {func() error { leader.Session(); return nil }, nil},
				"Token":    {func() error { leader.Token(); return nil }, nil},
				"Transfer": {func() error { return leader.Transfer(ctx, "/election/other") }, session},
			})
			answers{t, candidate}.are(map[string]answer{
				"Path":     {func() error { candidate.Path(); return nil }, nil},
				"Wait":     {func() error { _, err := candidate.Wait(ctx); return err }, session},
				"Withdraw": {candidate.Withdraw, nil},
			})
			<-latch.Done() // ends with the node; after a Shutdown because it gets no session
			answers{t, latch}.are(map[string]answer{
				"Changes": {func() error {
					for now := range latch.Changes(ctx) {
						if now != nil {
							return errors.New("it leads")
						}
					}
					return nil
				}, nil},
				"Close":    {latch.Close, nil},
				"Done":     {embedkit.Closed(latch.Done()), nil},
				"Err":      {latch.Err, node},
				"IsLeader": {func() error { latch.IsLeader(); return nil }, nil},
				"Leadership": {func() error {
					if _, ok := latch.Leadership(); ok {
						return errors.New("it leads")
					}
					return nil
				}, nil},
			})
			answers{t, mutex}.are(map[string]answer{
				"Forget":  {mutex.Forget, nil},
				"Lock":    {func() error { _, err := mutex.Lock(ctx); return err }, session},
				"TryLock": {func() error { _, err := mutex.TryLock(ctx); return err }, session},
				"With":    {func() error { _, err := mutex.With(lock.Options{Keep: time.Second}).Lock(ctx); return err }, session},
			})
			rw := lock.NewRWMutex(s, "/lock")
			answers{t, rw}.are(map[string]answer{
				"Downgrade": {func() error { _, err := rw.Downgrade(ctx, hold); return err }, embed.ErrNotHeld},
				"Lock":      {func() error { _, err := rw.Lock(ctx); return err }, session},
				"RLock":     {func() error { _, err := rw.RLock(ctx); return err }, session},
				"TryLock":   {func() error { _, err := rw.TryLock(ctx); return err }, session},
				"TryRLock":  {func() error { _, err := rw.TryRLock(ctx); return err }, session},
				"Upgrade":   {func() error { _, err := rw.Upgrade(ctx, hold); return err }, embed.ErrNotHeld},
				"With":      {func() error { _, err := rw.With(lock.Options{Note: "n"}).Lock(ctx); return err }, session},
			})
			sem := lock.NewSemaphore(s, "/semaphore", 2)
			answers{t, sem}.are(map[string]answer{
				"Acquire":    {func() error { _, err := sem.Acquire(ctx, 1); return err }, session},
				"Limit":      {func() error { _, err := sem.Limit(ctx); return err }, session},
				"Resize":     {func() error { return sem.Resize(ctx, 3) }, session},
				"TryAcquire": {func() error { _, err := sem.TryAcquire(ctx, 1); return err }, session},
				"With":       {func() error { _, err := sem.With(lock.Options{Note: "n"}).Acquire(ctx, 1); return err }, session},
			})
			several := lock.NewMulti(s, "/lock", "/other")
			answers{t, several}.are(map[string]answer{
				"Lock":    {func() error { _, err := several.Lock(ctx); return err }, session},
				"TryLock": {func() error { _, err := several.TryLock(ctx); return err }, session},
				"With":    {func() error { _, err := several.With(lock.Options{Note: "n"}).Lock(ctx); return err }, session},
			})
			answers{t, elect}.are(map[string]answer{
				"Campaign":   {func() error { _, err := elect.Campaign(ctx, nil); return err }, session},
				"Candidates": {func() error { _, err := elect.Candidates(ctx); return err }, session},
				"Enter":      {func() error { _, err := elect.Enter(ctx, nil, election.Options{}); return err }, session},
				"Leader":     {func() error { _, err := elect.Leader(ctx); return err }, session},
				"Observe": {func() (last error) {
					for _, err := range elect.Observe(ctx) {
						last = err
					}
					return last
				}, session},
			})
			if err := lock.Do(ctx, n, "/lock", fn); !errors.Is(err, node) {
				t.Errorf("lock.Do: %v", err)
			}
			if err := election.Run(ctx, n, "/election", nil, fn); !errors.Is(err, node) {
				t.Errorf("election.Run: %v", err)
			}
		})
	}
}

// An answer is a call and the error that it must return.
type answer struct {
	call func() error
	want error
}

type answers struct {
	t  *testing.T
	of any
}

// are makes the calls, and complains about methods without one.
func (a answers) are(want map[string]answer) {
	typ := reflect.TypeOf(a.of)
	for i := range typ.NumMethod() {
		name := typ.Method(i).Name
		w, ok := want[name]
		if !ok {
			a.t.Errorf("%v.%s is not asked", typ, name)
			continue
		}
		if err := w.call(); !errors.Is(err, w.want) || w.want == nil && err != nil {
			a.t.Errorf("%v.%s: %v, want %v", typ, name, err, w.want)
		}
	}
}

func drained(w *embed.Watch) func() error {
	return func() error {
		for range w.Events() {
		}
		return nil
	}
}
