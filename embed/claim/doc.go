// Package claim is for authors of recipes: locks, elections, and other ways in which sessions take
// turns.
//
//	c, err := claim.New(ctx, session, embed.OpCreate("/queue/c-", nil, embed.EphemeralSequential))
//	...
//	defer c.Release()
//	results, err := c.Created(ctx)
//	ahead, waits, err := claim.Before(ctx, session, results[0].Path) // watch it until there is none
//	...
//	tenure, err := c.Hold(false)
//	_, err = session.Multi(ctx, claim.OpGuard(tenure), embed.OpSet("/report", data, version))
//
// Most services need none of this: embed/lock and embed/election are made of it.
//
// A Claim is the ephemeral znodes with which a contender stands in queues. A Tenure is one period
// for which the claim is held. The node is responsible for a claim from the moment it is submitted:
// whatever happens to the caller, no znode is left behind. The owner of a Tenure learns of its end
// before anyone else can hold what the claim stands for, unless somebody deletes the znode. The
// package's example is a complete lock.
package claim
