// Package zookeeper runs ZooKeeper's own servers and programs beside Vivarium, from the Debian
// package zookeeper. It compares the two: the same script runs against both.
//
//	zookeeper.Need(t)
//	addrs := zookeeper.Start(t, 3, "tickTime=200\ninitLimit=100\nsyncLimit=100\n")
package zookeeper
