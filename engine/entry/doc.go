// Package entry is how a node without an id becomes a member: it asks the seeds, and joins their
// ensemble, or founds one with the other founders.
package entry
