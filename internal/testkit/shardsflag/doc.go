// Package shardsflag defines the flag -shards of this module's tests. Tests start their ensembles
// with that number of shards, unless a test names its own. Apart from tests, only embedtest imports
// it.
package shardsflag
