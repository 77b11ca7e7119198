// Package spread spreads the leaderships of several shards evenly over the members: each member asks for
// its own shares.
package spread
