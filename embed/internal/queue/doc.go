// Package queue is the fair queue below locks and elections. Contenders are ephemeral sequential
// znodes under one parent. They are served in the order of their numbers, and each waits for one
// other only.
//
// # Names
//
// A name has the form of Curator's recipes, so Curator's clients can stand in the same queue. Words
// that only this package reads stand before the kind:
//
//	_c_<uuid>-[<word>-]*<kind><ten digits>
//
//	d<ms>      how long the contender stays after its session was lost
//	i<16 hex>  who may take its place during that time
//	p<n>       its priority
//	up         it is a reader that waits to become the writer
//	z<zxid>    it took over its place: the tokens of the place count from this zxid
//
// # Places
//
// A place is a number in the queue. Some contenders stand in front of another that was there before
// them. Their number is the one before that contender's, and they come behind all others with that
// number, in the order of a key:
//
//	~u_<key, in the uuid's first two groups>...<kind><number><key><number>
//
// A forced recovery goes on from one member's state. The lost members may have granted tokens later
// than those of all places in it. So from then on nobody takes over a place of before, nor enters in
// front of one; see Place.IsPast.
//
// claim.Before orders by the last ten digits, then by the whole name. Curator orders by what
// follows the kind. Both orders are the same.
package queue
