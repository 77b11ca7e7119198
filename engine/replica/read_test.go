package replica

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/tree"
	"github.com/vivarium-go/vivarium/watch"
)

// A watcher may receive its event while others have yet to be told of the same change. If it reads
// then, it must see the change: "read again at each event" is all that most watchers do.
func TestAReadShowsWhatAnEventTold(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, r *rig){
		"a transaction": func(t *testing.T, r *rig) { r.set(t, 2) },
		"an install": func(t *testing.T, r *rig) {
			ahead := newRig(t)
			ahead.create(t)
			ahead.set(t, 2)
			r.install(t, ahead)
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.create(t)
			read := make(chan struct{})
			told := 0
			mayRead := func([]tree.ACL) bool {
				if told++; told == 2 { // one watch has its event
					select {
					case <-read:
					case <-time.After(50 * time.Millisecond): // the reader waits, as it should
					}
				}
				return true
			}
			var watches [2]*watch.Stream
			for i := range watches {
				watches[i] = r.Watches.Add("/a", watch.Once, watch.Options{}, &watch.Watcher{MayRead: mayRead})
			}
			first, second := watches[0].Events(), watches[1].Events()
			go func() {
				defer close(read)
				var e watch.Event
				select {
				case e = <-first:
				case e = <-second:
				}
				if _, stat, err := r.Tree().Get("/a"); err != nil || stat.Mzxid < e.Zxid {
					t.Errorf("after the event of zxid %d, a read shows zxid %d, %v", e.Zxid, stat.Mzxid, err)
				}
			}()
			change(t, r)
			<-read
		})
	}
}

// A pin shows it too.
func TestAPinShowsWhatAnEventTold(t *testing.T) {
	r := newRig(t)
	r.create(t)
	read := make(chan struct{})
	told := 0
	events := r.Watches.Add("/a", watch.Once, watch.Options{}, nil).Events()
	r.Watches.Add("/", watch.Recursive, watch.Options{}, &watch.Watcher{MayRead: func([]tree.ACL) bool {
		if told++; told == 1 {
			select {
			case <-read:
			case <-time.After(50 * time.Millisecond):
			}
		}
		return true
	}})
	go func() {
		defer close(read)
		e := <-events
		p := r.Tree().Pin()
		defer p.Release()
		if stat, _ := p.Exists("/a"); stat.Mzxid < e.Zxid {
			t.Errorf("after the event of zxid %d, a pin shows zxid %d", e.Zxid, stat.Mzxid)
		}
	}()
	r.set(t, 2)
	<-read
}

// create makes /a by the first transaction.
func (r *rig) create(t *testing.T) {
	t.Helper()
	r.commitOne(t, 1, tree.Op{Kind: tree.KindCreate, Path: "/a"})
}

// set sets the data of /a.
func (r *rig) set(t *testing.T, z tree.Zxid) {
	t.Helper()
	r.commitOne(t, z, tree.Op{Kind: tree.KindSet, Path: "/a", Version: tree.AnyVersion})
}

func (r *rig) commitOne(t *testing.T, z tree.Zxid, op tree.Op) {
	t.Helper()
	if _, err := r.commit(tree.Header{Zxid: z}, []tree.Op{op}, nil); err != nil {
		t.Fatal(err)
	}
}

// install brings the rig to the state of another one.
func (r *rig) install(t *testing.T, ahead *rig) {
	t.Helper()
	ahead.apply(command.EncodeExpire(0, 1)) // an entry, so that there is something to save
	snapshot, err := ahead.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	var stream bytes.Buffer
	if err := errors.Join(snapshot.WriteTo(&stream, nil), snapshot.Close()); err != nil {
		t.Fatal(err)
	}
	if err := r.Install(&stream, nil); err != nil {
		t.Fatal(err)
	}
}
