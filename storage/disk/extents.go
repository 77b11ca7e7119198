package disk

import (
	"errors"
	"slices"
)

// extents are pieces of a file: sorted, apart from each other, none empty.
type extents []extent

type extent struct {
	off  int64
	data []byte
}

func (e extent) end() int64 { return e.off + int64(len(e.data)) }

// write copies p over [off, off+len(p)). Pieces that meet become one, so a file that is only appended to has
// one piece that grows.
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

// merge lays p over pieces that it overlaps or touches and makes one of them all.
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
	// If there is a tail it is not in first.data: p would have fitted into that.
	first.data = append(first.data[:off-first.off], p...)
	first.data = append(first.data, tail...)
	return first
}

// truncate drops what is behind size.
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

// read copies what the pieces have of [off, off+len(p)) into p and leaves the rest of p alone.
func (x extents) read(p []byte, off int64) {
	end := off + int64(len(p))
	for _, e := range x {
		from, to := max(off, e.off), min(end, e.end())
		if from < to {
			copy(p[from-off:to-off], e.data[from-e.off:to-e.off])
		}
	}
}

// covers reports whether one piece has all of [off, end).
func (x extents) covers(off, end int64) bool {
	for _, e := range x {
		if e.off <= off && end <= e.end() {
			return true
		}
	}
	return off >= end
}

// check returns an error if the pieces are not as they should be.
func (x extents) check() error {
	for i, e := range x {
		if len(e.data) == 0 {
			return errors.New("piece is empty")
		}
		if i > 0 && x[i-1].end() >= e.off {
			return errors.New("pieces are not sorted and apart")
		}
	}
	return nil
}
