package disk

import (
	"errors"
	"slices"
)

// extents are pieces of a file. They are sorted, do not touch, and none is empty.
type extents []extent

type extent struct {
	off  int64
	data []byte
}

func (e extent) end() int64 { return e.off + int64(len(e.data)) }

// write copies p over [off, off+len(p)). Pieces that touch are joined, so a file that only grows
// has one piece.
func (x *extents) write(p []byte, off int64) {
	if len(p) == 0 {
		return
	}
	end := off + int64(len(p))
	// [first, past) are the pieces that p overlaps or touches.
	first, past := 0, len(*x)
	for first < past && (*x)[first].end() < off {
		first++
	}
	for past > first && (*x)[past-1].off > end {
		past--
	}
	if first == past {
		*x = slices.Insert(*x, first, extent{off: off, data: slices.Clone(p)})
		return
	}
	*x = slices.Replace(*x, first, past, merge((*x)[first:past], p, off))
}

// merge lays p over the pieces that it overlaps or touches, and joins all into one.
func merge(pieces []extent, p []byte, off int64) extent {
	first, last := pieces[0], pieces[len(pieces)-1]
	end := off + int64(len(p))
	if len(pieces) == 1 && first.off <= off && end <= first.end() {
		copy(first.data[off-first.off:], p)
		return first
	}
	var tail []byte
	if last.end() > end {
		tail = last.data[end-last.off:]
	}
	if first.off > off {
		first = extent{off: off}
	}
	// A tail is never in first.data: otherwise p would have fitted into first.
	first.data = append(first.data[:off-first.off], p...)
	first.data = append(first.data, tail...)
	return first
}

// truncate drops everything beyond size.
func (x *extents) truncate(size int64) {
	for i, e := range *x {
		if e.end() > size {
			if e.off < size {
				(*x)[i].data = e.data[:size-e.off]
				i++
			}
			*x = slices.Delete(*x, i, len(*x))
			return
		}
	}
}

// read copies the pieces' bytes of [off, off+len(p)) into p, and leaves the rest of p unchanged.
func (x extents) read(p []byte, off int64) {
	end := off + int64(len(p))
	for _, e := range x {
		from, to := max(off, e.off), min(end, e.end())
		if from < to {
			copy(p[from-off:to-off], e.data[from-e.off:to-e.off])
		}
	}
}

// covers reports whether one piece contains all of [off, end).
func (x extents) covers(off, end int64) bool {
	for _, e := range x {
		if e.off <= off && end <= e.end() {
			return true
		}
	}
	return off >= end
}

// check returns an error if the pieces are not sorted, not apart, or empty.
func (x extents) check() error {
	for i, e := range x {
		if len(e.data) == 0 {
			return errors.New("piece is empty")
		}
		if i > 0 && x[i-1].end() >= e.off {
			return errors.New("pieces are not sorted, or they touch")
		}
	}
	return nil
}
