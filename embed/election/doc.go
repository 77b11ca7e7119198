// Package election lets the processes of an ensemble choose one of them, built on embed's public face only.
//
// A candidate is an ephemeral sequential znode under the election's path that holds the candidate's value; the first in
// the queue leads. The names follow Curator's LeaderLatch (_c_<uuid>-latch-0000000007).
//
// Read election.go first, then leadership.go and run.go.
package election
