// Package claim has the rules of a claim: the ephemeral znodes of one transaction, with which a
// session stands in queues. A [Life] is what the claim's owner knows of it: its states, the steps
// between them, and the tenures for which it is held. It makes no promise of compatibility to users
// of the library; they import embed/claim.
//
// Sessions of a member (engine/keeper) and of a client (embed/client) have the same claims. They
// differ in their clocks and in how they reach the ensemble. So each binds a life to both as its
// [Owner], and ends the [Remains] of a claim by messages of its own.
//
// The package never reads a clock, starts a goroutine, does I/O or logs. A function whose name ends
// in Locked wants the owner's lock held. Every other one of a Life or a Tenure takes that lock, or
// reads only what never changes.
package claim
