// Package child runs this program again as child processes that answer questions, for tests that
// kill and stop real processes. It also finds free addresses for them.
//
// Questions and answers are lines of JSON. The questions come on the child's standard input, and
// the child ends when its input ends. The answers use a pipe of their own, so a child may print
// anything else to its log.
//
// Run runs another program, without questions. A test waits for lines of its log and for its exit
// code.
package child
