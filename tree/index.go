package tree

import (
	"hash/maphash"
	"sync/atomic"
)

// An index finds the entry of a path. It has one writer; readers take no lock. Make one with
// newIndex.
//
// It is an extendible hash table. The low bits of a path's hash select a place in the directory,
// which holds the bucket. A full bucket is split by one more bit. If the directory does not have
// that bit yet, it doubles. So an insert moves at most the entries of one bucket, and copies at
// most the directory. With a million znodes that takes a millisecond, where rehashing a whole table
// takes a hundred. For each path, an index needs 20 bytes. A sync.Map needs 122, for a node, a
// string header and a share of the inner nodes.
//
// Readers see a directory and buckets from some moment during the call. The hash differs between
// replicas and never shows: all returns entries in no order.
type index struct {
	seed      maphash.Seed
	directory atomic.Pointer[directory]
}

// A directory is a list of 1<<n buckets. A bucket with fewer bits than n appears in it several
// times. It never shrinks.
type directory []atomic.Pointer[bucket]

// A bucket takes 128 bytes. Two buckets with fewer than bucketFew entries in total are joined. With
// bucketFit entries per bucket on average, hardly one in twenty buckets would overflow.
const (
	bucketMax = 14
	bucketFew = bucketMax / 2
	bucketFit = 9
)

// A bucket holds the entries whose hashes end in the same bits. It is immutable once readers can
// see it.
type bucket struct {
	bits    uint8
	n       uint8             // number of entries
	tags    [bucketMax]uint8  // highest bits of the hashes, to skip most other entries
	entries [bucketMax]*entry // nil from index n on
}

// newIndex returns an empty index with room for n entries.
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

// add adds an entry. The index must not contain its path.
func (x *index) add(e *entry) {
	hash := x.hash(e.path)
	b := *x.roomy(hash)
	b.add(tagOf(hash), e)
	x.place(&b, hash)
}

// load is add before there are readers: it changes the bucket in place.
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
		if b := d[i].Load(); i>>b.bits == 0 { // the first of the bucket's places
			all = append(all, b.entries[:b.n]...)
		}
	}
	return all
}

// roomy returns the bucket for a hash, after splits until it has room for one more entry.
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

// place stores a bucket at all its places in the directory.
func (x *index) place(b *bucket, hash uint64) {
	d, step := *x.directory.Load(), 1<<b.bits
	for i := int(hash & uint64(step-1)); i < len(d); i += step {
		d[i].Store(b)
	}
}

// split splits a bucket in two by its next bit.
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

// join joins two buckets that differ only in their last bit, and repeats that with the result. It
// stops when the joined bucket might soon be split again.
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
