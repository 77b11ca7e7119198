// Package wiretest has frames of a conversation with ZooKeeper, byte for byte, for tests.
package wiretest
