package gateway

import (
	"strconv"
	"strings"
	"testing"

	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/internal/testkit/zookeeper"
	"github.com/vivarium-go/vivarium/internal/wire"
)

// monitored returns the keys and values of an answer to mntr.
func monitored(text string) map[string]string {
	found := make(map[string]string)
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		found[key] = value
	}
	return found
}

// mntr shows ZooKeeper's names for what the metrics count, since the last srst.
func TestMonitor_Counts(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		g := start(t, Config{Words: []string{"mntr", "srst"}})
		c := connect(t, g)
		c.must(create("/a", []byte("a"), 0))
		c.do(create("/a", nil, 0)) // refused, and yet a request to write
		c.must(op(wire.OpGetData, "/a"))
		c.do(op(wire.OpPing, ""))
		before := monitored(ask(t, g, "mntr"))
		for key, want := range map[string]string{
			"zk_cnt_updatelatency": "2", "zk_cnt_readlatency": "1",
			"zk_connection_request_count": "1", "zk_snap_count": "0",
		} {
			if before[key] != want {
				t.Errorf("%s is %q, want %s", key, before[key], want)
			}
		}
		for key, least := range map[string]float64{
			"zk_bytes_received_count": 100, "zk_response_bytes": 100,
			"zk_cnt_fsynctime": 1, "zk_sum_fsynctime": 0, "zk_avg_fsynctime": 0,
			"zk_sum_updatelatency": 0, "zk_min_updatelatency": 0,
			"zk_avg_updatelatency": 0, "zk_max_updatelatency": 0,
		} {
			if n, err := strconv.ParseFloat(before[key], 64); err != nil || n < least {
				t.Errorf("%s is %q, want at least %v", key, before[key], least)
			}
		}

		ask(t, g, "srst")
		after := monitored(ask(t, g, "mntr"))
		for key, most := range map[string]int{
			"zk_connection_request_count": 0,
			"zk_bytes_received_count":     8, "zk_response_bytes": 50, // those of the words themselves
		} {
			if n, err := strconv.Atoi(after[key]); err != nil || n > most {
				t.Errorf("after srst %s is %q, want at most %d", key, after[key], most)
			}
		}
		if n, ok := after["zk_cnt_updatelatency"]; ok {
			t.Errorf("after srst there are %s updates", n)
		}
		c.must(with(op(wire.OpSetData, "/a"), func(o *wire.Operation) { o.Data = []byte("1") }))
		if n := monitored(ask(t, g, "mntr"))["zk_cnt_updatelatency"]; n != "1" {
			t.Errorf("after srst and an update, there are %q updates", n)
		}
	})
}

// Monitors look for ZooKeeper's names: a key that a server of ZooKeeper does not have is a mistake.
func TestMonitor_NamesOfZooKeeper(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		zookeeper.Need(t)
		theirs := monitored(zookeeper.Ask(zookeeper.Start(t, 1, "tickTime=200\n")[0], "mntr"))
		g := start(t, Config{Words: []string{"mntr"}})
		c := connect(t, g)
		c.must(create("/a", []byte("a"), 0))
		c.must(op(wire.OpGetData, "/a"))
		ours := monitored(ask(t, g, "mntr"))
		if len(theirs) < 100 || len(ours) < 30 {
			t.Fatalf("ZooKeeper has %d keys, we have %d", len(theirs), len(ours))
		}
		// The first one is ours. The second one is of an ensemble there.
		delete(ours, "zk_feature_level")
		delete(ours, "zk_quorum_size")
		for key := range ours {
			if _, ok := theirs[key]; !ok {
				t.Errorf("ZooKeeper has no %s", key)
			}
		}
	})
}
