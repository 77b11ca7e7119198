package tree

import "fmt"

// The estimated memory of a znode and of an entry in its ACL, without the bytes of strings and
// data. These numbers are part of what a transaction does: every replica must count alike, for
// ever.
const (
	znodeWeight = 240
	entryWeight = 48
)

// weight estimates the memory of a znode in one of its versions; it is 0 where the znode does not
// exist. It follows from the znode alone, so a loaded tree has the same weight. An ACL counts for
// each znode that has it, because only chance decides which znodes share one.
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

// Weight returns the estimated bytes of memory of all znodes: 240 each, and their paths, data and
// ACLs.
func (t *Tree) Weight() int64 { return t.visibleWeight.Load() }

// SetWeightMax limits Weight: a transaction that would make the tree heavier than n fails with
// ErrQuotaExceeded. Zero means no limit. It belongs to the writer, and must be the same on every
// replica at each transaction. Quotas of subtrees apply independently. The few znodes below
// "/zookeeper/vivarium" have room in a full tree too: clients cannot write there, and whoever fills
// the tree must not stop what the members do.
func (t *Tree) SetWeightMax(n int64) { t.weightMax = n }

// checkWeight checks a completely staged transaction as a whole. It accepts every transaction that
// does not make the tree heavier, and the ensemble's own.
func (t *Tree) checkWeight() error {
	if t.weightMax == 0 || t.header.System {
		return nil
	}
	grown := int64(0)
	for _, m := range t.touched {
		if within(m.e.path, steeringPath) {
			continue
		}
		grown += m.e.weight(m.v) - m.e.weight(m.v.prev.Load())
	}
	if grown > 0 && t.weight+grown > t.weightMax {
		return fmt.Errorf("%w: the whole tree may take at most %d bytes of memory", ErrQuotaExceeded, t.weightMax)
	}
	return nil
}

// lastGrowing returns the index of the last operation that can make a tree heavier: the one that no
// longer found room.
func lastGrowing(ops []Op) int {
	for i := len(ops) - 1; i > 0; i-- {
		if k := ops[i].Kind; k == KindCreate || k == KindSet || k == KindAdd || k == KindEnsure {
			return i
		}
	}
	return 0
}
