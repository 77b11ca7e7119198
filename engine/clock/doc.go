// Package clock tells a node the time. Deadlines are measured on a clock that also counts the time
// that a machine sleeps. Transactions are stamped with the wall clock, for people to read. The two
// clocks together show when time was lost.
package clock
