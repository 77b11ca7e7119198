// Package steer decides who takes part in an ensemble, and with which part. It makes no promise of
// compatibility to users of the library; they import embed.
//
// The wish and the fact are apart. What each member is to be is a wish in the table of members
// (package session), which the home shard keeps. What it is on a shard is a fact of that shard's
// Raft.
//
// [Plan] says what the leader of the home shard should wish next. [Execute] says what the leader of
// a shard should do next, to make the wishes facts there. A [Watch] turns what a leader hears of
// the other members into the [Health] that both judge by.
//
//	w := steer.NewWatch(rules)                     // when a leadership begins
//	w.Look(steer.Look{…})                          // twice an election
//	wish, ok := steer.Plan(steer.Situation{…})     // on the home shard
//	step := steer.Execute(steer.Shard{…})          // on each shard
//
// The package never reads a clock, starts a goroutine, does I/O, logs or draws random numbers.
// Nothing in it is safe for concurrent use.
//
// # Why it is safe
//
// A member goes from learner to voter to out and never back. So whoever carries out an old wish
// does nothing that is no longer wanted, and no schedule makes a member's part flap.
//
// The step is what counts. Execute changes the voters of a shard only if those that answer now are
// a quorum, and also a quorum of the voters after the change. So the change commits, and so can the
// one after it. What dies in between is what no quorum system survives.
//
// Removing a dead voter from an odd number leaves the margin as it was, and from an even number
// raises it by one. Promoting a healthy one does the same. So Plan aims at an odd number, and makes
// an even one odd first. An even number remains only if a member left.
//
// A spare takes the place of a dead voter after that one is out. Of three voters one of which is
// dead, two are needed before, meanwhile and after. If the spare voted first, its death would be
// the third that ends all decisions, and with the dead one it would be half of four.
//
// What this order costs: once the dead voter is out, its return helps nobody. Until the spare
// votes, which takes two changes or until the spare is well again, one of the two that are needed
// may die, and only its own return helps.
//
// # What the caller owes
//
// Plan is asked by the leader of the home shard only, after its leadership has been entered in the
// table (session's Govern) and the entry is applied. It must see every wish that this leadership
// has made, so there is at most one under way. If the outcome of a wish is unknown, the leader
// enters its leadership anew first: that refuses the old wish should it still arrive.
//
// Execute is asked by the leader of a shard only, when three things hold. It has applied the first
// entry of its term. It hands the leadership to nobody. Its earlier change is applied or lost.
//
// The members of the shard come from a read with a barrier. The table comes from a replica of the
// home shard after a barrier there. Both barriers begin after the earlier step is done.
//
// A step is carried out at once, and not kept for later. A change names the Change that the step
// was judged by, so it does nothing once another has come first.
//
// A member that is to be out goes on voting until it is out of all shards where it votes. Its
// process must not end at its first removal, nor may the others refuse it from then on. Otherwise
// another shard could lose a vote that its own removal of the member needs. Of two voters, it
// would.
//
// Leaderships that are spread over the members do not go to one that is to be out: Execute would
// hand them on.
//
// Read health.go first, then planner.go and executor.go.
package steer
