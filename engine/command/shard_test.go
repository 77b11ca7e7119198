package command

import (
	"testing"
)

// F1: this is the only place that says which shard has a znode. These values can never change.
// Another program computed them.
func TestShardOf_IsForEver(t *testing.T) {
	for path, want := range map[string][4]int{
		"/a":               {1, 2, 3, 27},
		"/jobs":            {0, 0, 0, 48},
		"/orders":          {1, 0, 1, 53},
		"/locks/account-7": {0, 2, 2, 62},
		"/été":             {1, 1, 1, 49},
		"/n-0000000042":    {1, 0, 1, 61},
		"/n-":              {1, 0, 1, 61},
		"/1234567890":      {1, 0, 1, 25},
		"/12345678901":     {0, 0, 0, 20},
		"/x123456789":      {1, 1, 1, 41},
		"/a-first-component-of-more-than-thirty-two-bytes": {0, 1, 2, 30},
		"/zookeeper/quota/jobs/zookeeper_limits":           {0, 0, 0, 48},
		"/zookeeper":                                       {},
		"/zookeeper/quota":                                 {},
		"/zookeeper/quota/zookeeper_limits":                {},
		"/zookeeper/quota/zookeeper_stats":                 {},
		"/zookeeper/config":                                {},
		"/":                                                {},
	} { // with 2, 3, 4 and 64 shards
		for i, n := range []int{2, 3, 4, 64} {
			if got := int(ShardOf(path, n)) - 1; got != want[i] {
				t.Errorf("%s is on shard %d of %d, counted from 0, and belongs on %d", path, got, n, want[i])
			}
		}
	}
}
