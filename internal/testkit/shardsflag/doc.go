// Package shardsflag gives the tests of this module the flag -shards, with which they run on as many shards as are asked for.
// No package that a program links imports it, but embedtest.
package shardsflag
