package tree

import "fmt"

// What a znode and an entry of its ACL take in memory, about, beside the bytes of their words and
// data. They are part of what a transaction does: every replica must count alike, for ever.
const (
	znodeWeight = 240
	entryWeight = 48
)

// weight is what a znode takes in memory in one of its versions, about; nothing where it does not
// exist. It follows from the znode alone, so that a loaded tree has the same. An ACL is counted with
// each znode that has it: only luck decides which of them share one.
func (e *entry) weight(v *version) int64 {
	if v.orNil() == nil {
		return 0
	}
	n := znodeWeight + e.size(v)
	for _, a := range v.acl() {
		n += int64(entryWeight + len(a.Scheme) + len(a.ID))
	}
	return n
}

// Weight returns how many bytes of memory the znodes take, about: 240 each, with their paths, their
// data and their ACLs.
func (t *Tree) Weight() int64 { return t.visibleWeight.Load() }

// SetWeightMax bounds Weight: a transaction that makes the tree heavier than that fails with
// ErrQuotaExceeded. Zero is no bound. It belongs to the writer, and must be the same on every
// replica at each transaction. Quotas of subtrees go on beside it.
func (t *Tree) SetWeightMax(n int64) { t.weightMax = n }

// checkWeight looks at a transaction as a whole, when all of it is staged. One that does not make
// the tree heavier always has room, and so have the ensemble's own.
func (t *Tree) checkWeight() error {
	if t.weightMax == 0 || t.header.System {
		return nil
	}
	grown := int64(0)
	for _, m := range t.touched {
		grown += m.e.weight(m.v) - m.e.weight(m.v.prev.Load())
	}
	if grown > 0 && t.weight+grown > t.weightMax {
		return fmt.Errorf("%w: the whole tree may take %d bytes of memory", ErrQuotaExceeded, t.weightMax)
	}
	return nil
}

// lastGrowing is the index of the last operation that can make a tree heavier: the one that there is no
// room for any more.
func lastGrowing(ops []Op) int {
	for i := len(ops) - 1; i > 0; i-- {
		if k := ops[i].Kind; k == KindCreate || k == KindSet {
			return i
		}
	}
	return 0
}
