package roster

import "sync/atomic"

// A Departure counts the calls that take this member out, and the shards that it is out of. One
// word has both: whoever gives up knows whether somebody has counted on it. Zero is a member that
// stays.
type Departure struct {
	word atomic.Int64
}

const (
	aLeaver = 1       // a call whose wish is, or may be, recorded
	aShard  = 1 << 32 // from the first one on the member serves nobody
)

// Begin adds a call.
func (d *Departure) Begin() { d.word.Add(aLeaver) }

// GiveUp takes a call back, and reports whether it could. It cannot once the member is out of a
// shard: then somebody's wish was recorded.
func (d *Departure) GiveUp() bool {
	for {
		was := d.word.Load()
		if was >= aShard {
			return false
		}
		if d.word.CompareAndSwap(was, was-aLeaver) {
			return true
		}
	}
}

// OutOfOne adds a shard. It returns how many there are, and whether a call expects it.
func (d *Departure) OutOfOne() (shards int, expected bool) {
	now := d.word.Add(aShard)
	return int(now / aShard), now%aShard > 0
}

// Expected reports whether a call takes this member out.
func (d *Departure) Expected() bool { return d.word.Load()%aShard > 0 }

// Shards returns of how many shards the member is out.
func (d *Departure) Shards() int { return int(d.word.Load() / aShard) }
