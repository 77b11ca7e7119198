// Package peers decides which other members may talk to a node: whose directory and history are those
// that the ensemble knows.
package peers
