// Package measure has what the programs of this module need to measure: callers in a hot loop with
// a histogram of their calls' durations, the cost of a process, and figures of several rounds.
package measure
