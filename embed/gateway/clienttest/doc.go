// Package clienttest tests the gateway with clients that others wrote: go-zookeeper, kazoo,
// Curator, and ZooKeeper's own shell and C client. It is a module of its own, which keeps those
// clients out of the library's dependencies.
package clienttest
