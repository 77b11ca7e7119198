// Package crowd bounds the connections of a port, so that nobody who can reach it takes the file
// descriptors of the process, or the places of others.
//
// Of says who counts as one, Greediest who makes room for a newcomer, and Fits how many connections
// a process has descriptors for. A Listener does all this for a [net/http.Server]; the gateway and
// the members' transport have loops of their own.
package crowd
