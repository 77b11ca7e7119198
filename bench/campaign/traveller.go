package campaign

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/vivarium-go/vivarium/embed"
)

// A traveller is a remote client with one session for the whole round. When its member goes down it
// takes the session to another one, perhaps of another build. The session and its ephemeral must
// not end.
type traveller struct {
	w    *workload
	conn *zk.Conn
	path string
	name string
	last int32 // version that was acknowledged
}

// travel starts travellers, one with an ephemeral in each area. They end with ctx.
func (w *workload) travel(ctx context.Context) {
	var servers []string // go-zookeeper takes nothing but addresses
	for _, id := range w.e.ids {
		servers = append(servers, fmt.Sprintf("127.0.0.1:%d", id))
	}
	dial := func(_, server string, timeout time.Duration) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		_, port, _ := net.SplitHostPort(server)
		id, err := strconv.Atoi(port)
		if err != nil {
			return nil, err
		}
		return w.e.host.Dial(ctx, embed.MemberID(id))
	}
	for i, area := range w.areas {
		conn, events, err := zk.Connect(servers, sessionTimeoutLong, zk.WithDialer(dial), zk.WithLogger(silence{}))
		if err != nil {
			w.report.violate("harness", "traveller: %v", err)
			return
		}
		t := &traveller{w: w, conn: conn, name: fmt.Sprintf("traveller-%d", i), path: fmt.Sprintf("%s%s/traveller-%d", area, markersPath, i)}
		w.clients.Go(func() { t.hear(events) })
		w.clients.Go(func() {
			defer conn.Close()
			for t.enter(ctx); ctx.Err() == nil; pause(ctx, 5*tick) {
				t.set()
			}
		})
	}
}

// hear counts the members that the traveller comes to, until it closes its connection.
func (t *traveller) hear(events <-chan zk.Event) {
	for e := range events {
		switch e.State {
		case zk.StateHasSession:
			t.w.report.count(sectionSeen, "traveller came to a member", 1)
		case zk.StateExpired:
			t.w.report.violate("upgrade", "the remote session of %s has ended", t.name)
		}
	}
}

// enter creates the ephemeral.
func (t *traveller) enter(ctx context.Context) {
	for ctx.Err() == nil {
		_, err := t.conn.Create(t.path, nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
		if err == nil || errors.Is(err, zk.ErrNodeExists) {
			return
		}
		pause(ctx, 5*tick)
	}
}

// set sets the ephemeral's data.
func (t *traveller) set() {
	switch stat, err := t.conn.Set(t.path, []byte(t.name), -1); {
	case errors.Is(err, zk.ErrNoNode):
		t.w.report.violate("upgrade", "the ephemeral of %s has gone", t.name)
	case err != nil: // between two members
	case stat.Version <= t.last:
		t.w.report.violate("upgrade", "%s has set version %d after version %d", t.name, stat.Version, t.last)
	default:
		t.last = stat.Version
		t.w.report.count(sectionChecks, "set by a traveller", 1)
	}
}

// silence logs nothing.
type silence struct{}

func (silence) Printf(string, ...any) {}
