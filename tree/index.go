package tree

import (
	"hash/maphash"
	"sync/atomic"
)

// An index finds the entry of a path. Readers take no lock; there is one writer. Make one with newIndex.
//
// It is an extendible hash table: the low bits of a path's hash are a place in the directory, and there is the bucket. A bucket
// that is full is split by one bit more, and the directory doubles when it has not got that bit yet. So no insert moves more
// than a bucket, or copies more than the directory: a millisecond for a million znodes, where a table that is rehashed as a whole
// takes a hundred. A sync.Map has a node, a string's head and a share of inner nodes for each path: 122 bytes, here it is 20.
//
// Readers look at a directory and at buckets as they were at some moment of the call. The hash differs from replica to replica and
// shows nowhere: all has no order.
type index struct {
	seed      maphash.Seed
	directory atomic.Pointer[directory]
}

// A directory is a list of 1<<n buckets; one that has fewer bits than n stands in it more than once. It does not shrink.
type directory []atomic.Pointer[bucket]

// A bucket takes 128 bytes. What fewer than bucketFew entries are left of is put together again. With bucketFit to a bucket, hardly
// one in twenty has more than there is room for.
const (
	bucketMax = 14
	bucketFew = bucketMax / 2
	bucketFit = 9
)

// A bucket holds the entries whose hashes end in the same bits. It is immutable once readers may have it.
type bucket struct {
	bits    uint8
	n       uint8             // how many entries there are
	tags    [bucketMax]uint8  // the highest bits of the hashes: which entries are worth a look
	entries [bucketMax]*entry // nil from n on
}

// newIndex returns an empty index that is to hold n entries.
func newIndex(n int) *index {
	x := &index{seed: maphash.MakeSeed()}
	fit := 0
	for n>>fit > bucketFit {
		fit++
	}
	d := make(directory, 1<<fit)
	for i := range d {
		d[i].Store(&bucket{bits: uint8(fit)})
	}
	x.directory.Store(&d)
	return x
}

func (x *index) hash(path string) uint64 { return maphash.String(x.seed, path) }

func tagOf(hash uint64) uint8 { return uint8(hash >> 56) }

func (x *index) get(path string) *entry {
	hash := x.hash(path)
	return x.bucket(hash).get(path, hash)
}

func (x *index) bucket(hash uint64) *bucket {
	d := *x.directory.Load()
	return d[hash&uint64(len(d)-1)].Load()
}

func (b *bucket) get(path string, hash uint64) *entry {
	for i, tag := range b.tags {
		if tag != tagOf(hash) {
			continue
		}
		if e := b.entries[i]; e != nil && e.path == path {
			return e
		}
	}
	return nil
}

// add puts an entry into the index, whose path is not in it.
func (x *index) add(e *entry) {
	hash := x.hash(e.path)
	b := *x.roomy(hash)
	b.add(tagOf(hash), e)
	x.place(&b, hash)
}

// load is add while there are no readers yet, which spares it the copy.
func (x *index) load(e *entry) {
	hash := x.hash(e.path)
	x.roomy(hash).add(tagOf(hash), e)
}

func (x *index) remove(path string) {
	hash := x.hash(path)
	b := *x.bucket(hash)
	for i := range b.n {
		if b.entries[i].path == path {
			b.n--
			b.tags[i], b.entries[i] = b.tags[b.n], b.entries[b.n]
			b.tags[b.n], b.entries[b.n] = 0, nil
			break
		}
	}
	x.place(&b, hash)
	x.join(&b, hash)
}

// all returns every entry, in no order.
func (x *index) all() []*entry {
	var all []*entry
	d := *x.directory.Load()
	for i := range d {
		if b := d[i].Load(); i>>b.bits == 0 { // the first of its places
			all = append(all, b.entries[:b.n]...)
		}
	}
	return all
}

// roomy returns the bucket of a hash with room for one entry more.
func (x *index) roomy(hash uint64) *bucket {
	for {
		b := x.bucket(hash)
		if b.n < bucketMax {
			return b
		}
		x.split(b, hash)
	}
}

func (b *bucket) add(tag uint8, e *entry) {
	b.tags[b.n], b.entries[b.n] = tag, e
	b.n++
}

// place stores a bucket wherever it stands in the directory.
func (x *index) place(b *bucket, hash uint64) {
	d, step := *x.directory.Load(), 1<<b.bits
	for i := int(hash & uint64(step-1)); i < len(d); i += step {
		d[i].Store(b)
	}
}

// split makes two of a bucket, by its next bit.
func (x *index) split(b *bucket, hash uint64) {
	if d := *x.directory.Load(); len(d) == 1<<b.bits {
		x.double(d)
	}
	next := uint64(1) << b.bits
	zero, one := &bucket{bits: b.bits + 1}, &bucket{bits: b.bits + 1}
	for _, e := range b.entries {
		if h := x.hash(e.path); h&next == 0 {
			zero.add(tagOf(h), e)
		} else {
			one.add(tagOf(h), e)
		}
	}
	x.place(zero, hash&^next)
	x.place(one, hash|next)
}

func (x *index) double(d directory) {
	twice := make(directory, 2*len(d))
	for i := range twice {
		twice[i].Store(d[i&(len(d)-1)].Load())
	}
	x.directory.Store(&twice)
}

// join makes one of two buckets that differ in their last bit, and so on, if that leaves room enough not to be split again soon.
func (x *index) join(b *bucket, hash uint64) {
	for b.bits > 0 {
		other := x.bucket(hash ^ 1<<(b.bits-1))
		if other.bits != b.bits || b.n+other.n >= bucketFew {
			return
		}
		both := &bucket{bits: b.bits - 1}
		for _, half := range []*bucket{b, other} {
			for i := range half.n {
				both.add(half.tags[i], half.entries[i])
			}
		}
		x.place(both, hash)
		b = both
	}
}
