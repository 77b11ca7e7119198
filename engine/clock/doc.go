// Package clock tells a node the time. Deadlines are measured on a clock that also counts the time
// a machine sleeps. The wall clock is stamped on transactions for people, and shows when time was
// lost.
package clock
