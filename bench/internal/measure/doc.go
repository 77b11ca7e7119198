// Package measure has what the programs of this module share for measuring. It runs callers in a
// hot loop and keeps a histogram of their calls' durations. It measures what a process costs, and
// summarizes the figures of several rounds.
package measure
