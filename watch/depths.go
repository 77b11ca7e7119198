package watch

import "iter"

// depths counts watched paths by depth. Its last count is not zero.
type depths []int

func (d *depths) add(path string) {
	at := depthOf(path)
	for len(*d) <= at {
		*d = append(*d, 0)
	}
	(*d)[at]++
}

func (d *depths) remove(path string) {
	(*d)[depthOf(path)]--
	n := len(*d)
	for n > 0 && (*d)[n-1] == 0 {
		n--
	}
	if *d = (*d)[:n]; n == 0 {
		*d = nil
	}
}

// upTo yields the ancestors of a path and the path itself, from the root down, but only those at a
// depth at which something is watched. Only these cost the caller a lookup. So even a path that is
// made long on purpose costs no more than its length.
func (d depths) upTo(path string) iter.Seq[string] {
	return func(yield func(string) bool) {
		if len(d) == 0 || d[0] > 0 && !yield("/") || path == "/" {
			return
		}
		depth := 1
		for i := 1; i <= len(path) && depth < len(d); i++ {
			if i < len(path) && path[i] != '/' {
				continue
			}
			if d[depth] > 0 && !yield(path[:i]) {
				return
			}
			depth++
		}
	}
}

// depthOf counts the components of a canonical path.
func depthOf(path string) int {
	if path == "/" {
		return 0
	}
	depth := 0
	for i := range len(path) {
		if path[i] == '/' {
			depth++
		}
	}
	return depth
}
