// Package wiretest has frames of ZooKeeper's conversation for tests, byte for byte.
package wiretest
