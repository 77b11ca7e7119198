// Package enginetest is what the tests of the engine and its rooms share. It has a log that a test
// controls in place of Raft, a clock that a test can move, and the seeds of randomized tests.
package enginetest
