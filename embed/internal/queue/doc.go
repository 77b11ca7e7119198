// Package queue is the fair queue under locks and elections: contenders are ephemeral sequential znodes under one parent,
// served in order of their numbers, each waiting for one other only.
//
// The names follow Curator's form, so that its clients can stand in the same queue, with words of our own before the kind:
//
//	_c_<uuid>-[<word>-]*<kind><ten digits>
//	d<ms>      it stays so long after its session was lost
//	i<16 hex>  who may take its place then
//	p<n>       its priority
//	up         a reader who waits to become the writer
//	z<zxid>    its place was taken over: tokens at the place count from there
//
// A place is a number. Those that stand in front of somebody who was there before have the number before that one's and come behind all others of
// that number, in the order of a key: ~u_<key, in the uuid's first two groups>...<kind><number><key><number>. By the name this is
// the order of Session.Before, by what follows the kind it is Curator's.
//
// Read names.go first, then queue.go and place.go.
package queue
