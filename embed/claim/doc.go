// Package claim lets authors of recipes make locks, elections and other ways to take turns.
//
// A Claim is the ephemeral znodes with which a contender stands in queues. A Tenure is one period
// for which the claim is held. For example, a contender of one queue:
//
//	c, err := claim.New(ctx, session, embed.OpCreate("/queue/c-", nil, embed.EphemeralSequential))
//	if err != nil {
//		return err
//	}
//	defer c.Release()
//	results, err := c.Created(ctx)
//	// Before names the contender ahead of results[0].Path. Watch it, until there is none.
//	tenure, err := c.Hold(false)
//	_, err = session.Multi(ctx, claim.OpGuard(tenure), embed.OpSet("/report", data, version))
//
// Most services need none of this: embed/lock and embed/election are made with it.
package claim
