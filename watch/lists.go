package watch

// lists holds the first stream of each watched path. The streams of a path are linked through next
// and prev. A path with one watch, the common case, costs nothing besides the stream. A path with
// 100,000 watches can lose any of them at once.
type lists map[string]*Stream

// push adds a stream and reports whether it is the first of its path.
func (l lists) push(s *Stream) (first bool) {
	head := l[s.path]
	if head != nil {
		s.next, head.prev = head, s
	}
	l[s.path] = s
	return head == nil
}

// remove unlinks a stream and reports whether it was the last of its path.
func (l lists) remove(s *Stream) (last bool) {
	if s.next != nil {
		s.next.prev = s.prev
	}
	switch {
	case s.prev != nil:
		s.prev.next = s.next
	case s.next != nil:
		l[s.path] = s.next
	default:
		delete(l, s.path)
		last = true
	}
	s.next, s.prev = nil, nil
	return last
}
