// Package measure has what the programs of this module need to measure: callers in a hot loop and a histogram of how long
// their calls took, what a process costs the machine, and numbers of several rounds.
package measure
