// Package bridge leads from a node of package embed to what is behind it, for embed/gateway: it has sessions that are not of this
// process, which the public face does not know. Being internal, it keeps them out of it, and a service without a gateway has none of
// what is on the other side.
package bridge
