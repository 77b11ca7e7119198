// Package census looks at the sessions of the whole ensemble, as one node's replicas know them, and
// counts what the trees hold.
package census
