// Package child runs the present program again as child processes that answer questions, for tests that kill and stop
// real processes, and finds addresses for them. Questions and answers are lines of JSON: the questions come on the child's standard input, and when that
// ends so does the child; the answers go through a pipe of their own, so that whatever else a child prints is its log.
package child
