package gateway

import (
	"testing"

	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/internal/wire"
)

// A sequential create below the quotas needs Admin on the subtree whose name it gets with its number.
func TestQuota_OfASequentialZnode(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		g := start(t, Config{})
		owner, c := ownerOf(t, g), connect(t, g)
		job := create("/job-", nil, 2)
		job.ACL = []wire.ACL{{Perms: wire.PermAll, Scheme: "auth"}}
		path := owner.must(job).Path
		// The number that comes next below the quotas gets to that of the znode.
		for range 20 {
			quota := create("/zookeeper/quota/job-", nil, 2)
			quota.ACL = []wire.ACL{{Perms: wire.PermRead, Scheme: "world", ID: "anyone"}}
			r := c.do(quota)
			if r.Err == wire.OK && r.Path == "/zookeeper/quota"+path {
				t.Fatalf("made %s", r.Path)
			}
			if r.Err != wire.OK {
				return
			}
		}
		t.Error("no number came to that of the znode")
	})
}
