package gateway

import (
	"testing"

	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/internal/wire"
	"github.com/vivarium-go/vivarium/tree"
)

// A client that deletes with one Czxid after the other does not find the one that created a znode which
// it may not read.
func TestNative_ACreationIsNotFoundByAsking(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		g := start(t, Config{})
		owner, c := ownerOf(t, g), connectNative(t, g)
		secret := create("/secret/plan", nil, 0)
		secret.ACL = []wire.ACL{{Perms: wire.PermAll, Scheme: "auth"}}
		secret.Op = wire.OpCreate2
		want := owner.must(secret).Stat.Czxid
		for range 50 {
			owner.must(op(wire.OpSetData, "/secret"))
		}
		now := c.mustNative(wire.Native{Kind: wire.NativeSync, Path: "/secret"}).Zxid
		if r := c.do(op(wire.OpGetChildren, "/secret")); r.Err != wire.NoAuth {
			t.Fatalf("code %d", r.Err)
		}
		codes := map[int32][]int64{}
		for z := now; z > now-100 && z > 0; z-- {
			r := c.native(wire.Native{Kind: wire.NativeSubmit, Ops: []wire.NativeOp{{Kind: int32(tree.KindDelete), Path: "/secret/plan", Version: -1, Czxid: z}}})
			codes[r.Failure] = append(codes[r.Failure], z)
		}
		for code, at := range codes {
			if len(at) == 1 && at[0] == want {
				t.Errorf("the hidden znode was created in %d: the only zxid with failure %d", at[0], code)
			}
		}
	})
}
