// Package forest reads the trees of all shards of a node. The first component of a path decides on its
// shard; the root and a few other znodes are on every shard, and readers put them together.
package forest
