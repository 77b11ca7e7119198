// Package server tests the program vivarium with go-zookeeper's clients: members in processes of
// their own are killed and stopped, and the clients keep what they hold.
package server
