package claim

import (
	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/internal/inside"
	"github.com/vivarium-go/vivarium/tree"
)

// OpGuard makes the Multi fail with embed.ErrNotHeld unless the claim is held in this Tenure. The
// node compares its clock when the Multi is issued. When the ensemble applies the Multi, it checks
// that the claim's znodes are still the ephemerals that its session created: one that lingers
// fails. So nothing is written under a lock or a leadership that someone else may have by now.
//
// The Multi may be of any session of the ensemble that may read those znodes, except for a claim that is held again: see
// Claim.Hold. A nil Tenure has ended.
func OpGuard(t *Tenure) embed.Op {
	if t == nil {
		t = new(Tenure)
	}
	return embed.Op(inside.Guard(t.t))
}

// OpRelease gives up a claim of the Multi's session: the claim's znodes are deleted in the same
// transaction. If the claim is held, its Tenure ends when the Multi is issued, whether or not the
// Multi succeeds. If the Multi is not applied, the claim's znodes are still there.
//
// It fails with embed.ErrNotHeld if the claim has ended or another Multi is giving it up. A nil
// Claim has ended.
func OpRelease(c *Claim) embed.Op {
	if c == nil {
		c = new(Claim)
	}
	return embed.Op(inside.Release(c.c))
}

// OpInherit deletes an ephemeral that lingers, see embed.CreateOptions.TTL, for a Claim of the same
// transaction that takes its place. Until that claim is held, its own ephemerals linger however it
// ends, even by Release or Session.Close.
func OpInherit(path string) embed.Op { return embed.Op(inside.Inherit(path)) }

// OpCheckCzxid makes the Multi fail with embed.ErrNotHeld unless the znode is the ephemeral that
// the transaction czxid created, and the session may read it or owns it. Another znode of the same path
// does not pass.
func OpCheckCzxid(path string, czxid embed.Zxid) embed.Op {
	return embed.Op(inside.Plain(tree.Op{Kind: tree.KindGuard, Path: path, Czxid: czxid}))
}

// OpCheckLost makes the Multi fail with embed.ErrBadVersion unless the znode lingers, see
// embed.CreateOptions.TTL, and the transaction mzxid was the last to write its data, as the loss
// does. A TTL znode passes too, which is the same to the ensemble; no other znode does. It needs the
// permission Read. Other errors: embed.ErrNoNode.
func OpCheckLost(path string, mzxid embed.Zxid) embed.Op {
	return embed.Op(inside.Plain(tree.Op{Kind: tree.KindCheckLost, Path: path, Mzxid: mzxid}))
}
