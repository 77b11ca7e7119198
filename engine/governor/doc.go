// Package governor is what a leader does about members: it admits them, records that they are to vote
// or to be out, and makes that so on each shard that its node leads. Package steer decides what a
// steering does next. Whoever is counted on for a quorum has stored an entry just now: see Prove.
package governor
