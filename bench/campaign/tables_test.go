package campaign

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/embed"
)

// tables is a Host whose gateways say how many sessions there are.
type tables struct {
	Host
	sessions atomic.Int64
}

func (d *tables) Dial(context.Context, embed.MemberID) (net.Conn, error) {
	near, far := net.Pipe()
	go func() {
		defer far.Close()
		_, _ = io.ReadFull(far, make([]byte, len(wordMonitor)))
		fmt.Fprintf(far, "zk_version\t1\nzk_global_sessions\t%d\nzk_ephemerals_count\t2\n", d.sessions.Load())
	}()
	return near, nil
}

// Sessions that are over may stay in the tables until their timeouts, and not for ever.
func TestExpectTables(t *testing.T) {
	for _, lasts := range []time.Duration{0, tablesMax / 2, 2 * tablesMax} {
		synctest.Test(t, func(t *testing.T) {
			d := &tables{}
			d.sessions.Store(3)
			time.AfterFunc(lasts, func() { d.sessions.Store(1) })
			e := &ensemble{host: d, ids: []embed.MemberID{1, 2}}
			e.mu.runs = map[embed.MemberID]*run{1: {number: 2}}
			h := &history{now: func() time.Duration { return 0 }}
			for _, l := range []life{
				{Member: 1, Run: 2, Ended: never, Markers: []string{"/a", "/b"}},
				{Member: 1, Run: 1, Ended: never, Markers: []string{"/c"}}, // its process died
				{Member: 1, Run: 2, Ended: time.Second, Markers: []string{"/d"}},
			} {
				add(h, lives, l)
			}
			rep := newReport(io.Discard, h.now)
			c := &campaign{report: rep}
			c.expectTables(&workload{e: e, h: h})
			if rep.failed() != (lasts > tablesMax) {
				t.Errorf("sessions that are over stay for %v: %v", lasts, rep.mu.violations)
			}
		})
	}
}
