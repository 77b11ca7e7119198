// Package enginetest has what the tests of the engine and its rooms share: a log that a test holds
// in place of Raft, a clock that it can move, and the seeds of randomized tests.
package enginetest
