package gateway

import (
	"testing"

	"github.com/vivarium-go/vivarium/embed/metrics"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/internal/wire"
)

// read returns the values of a gateway by name and label. Those of a histogram are its counts.
func read(g *Gateway) map[string]float64 {
	found := make(map[string]float64)
	for s := range g.Samples() {
		key := s.Name
		for _, l := range s.Labels {
			key += " " + l.Value
		}
		if found[key] = s.Value; s.Kind == metrics.Distribution {
			found[key] = float64(s.Histogram.Count())
		}
	}
	return found
}

func TestSamples(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		g := start(t, Config{Words: []string{"srst"}})
		c := connect(t, g)
		c.must(create("/a", []byte("a"), 0))
		c.do(create("/a", nil, 0))
		c.must(op(wire.OpGetData, "/a"))
		c.do(op(wire.OpGetData, "/b"))
		c.do(op(wire.OpPing, ""))
		wanted := map[string]float64{
			"vivarium_gateway_connections": 1, "vivarium_gateway_outstanding": 0, "vivarium_gateway_refused_total": 0, "vivarium_gateway_auth_failures_total": 0,
			"vivarium_gateway_handshakes_total new": 1, "vivarium_gateway_handshakes_total reattached": 0,
			"vivarium_gateway_request_seconds write": 2, "vivarium_gateway_errors_total write": 1,
			"vivarium_gateway_request_seconds read": 2, "vivarium_gateway_errors_total read": 1,
			"vivarium_gateway_request_seconds other": 1, "vivarium_gateway_errors_total other": 0,
			"vivarium_gateway_requests_total create": 2, "vivarium_gateway_requests_total get_data": 2, "vivarium_gateway_requests_total ping": 1,
			"vivarium_gateway_requests_total exists": 0, "vivarium_gateway_requests_total other": 0,
		}
		check := func() {
			t.Helper()
			got := read(g)
			for key, want := range wanted {
				if got[key] != want {
					t.Errorf("%s is %v, want %v", key, got[key], want)
				}
			}
		}
		check()
		before := read(g)
		if before["vivarium_gateway_bytes_total received"] < 200 || before["vivarium_gateway_bytes_total sent"] < 100 {
			t.Errorf("%v", before)
		}

		// The word that resets ZooKeeper's figures resets no metric.
		word := dial(t, g)
		if _, err := word.Write([]byte("srst")); err != nil {
			t.Fatal(err)
		}
		word.ends()
		for key, was := range before {
			if now, ok := read(g)[key]; !ok || now < was && key != "vivarium_gateway_connections" && key != "vivarium_gateway_held_bytes" {
				t.Errorf("%s was %v and is %v", key, was, now)
			}
		}

		// A client that returns, and one that comes too late.
		again := dial(t, g)
		again.open(wire.ConnectRequest{Timeout: hello().Timeout, SessionID: c.SessionID, Password: c.Password})
		late := dial(t, g)
		q := hello()
		q.SessionID = c.SessionID
		late.write(q.AppendFrame(nil))
		late.ends()
		wait(t, "the handshakes to be counted", func() bool {
			now := read(g)
			return now["vivarium_gateway_handshakes_total reattached"] == 1 && now["vivarium_gateway_handshakes_total expired"] == 1
		})
		if err := g.Close(); err != nil {
			t.Fatal(err)
		}
		if n := read(g)["vivarium_gateway_connections"]; n != 0 {
			t.Errorf("%v connections after Close", n)
		}
	})
}
