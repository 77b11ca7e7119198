package watch

// lists holds, for each watched path, the first of its streams, which are linked through next and prev.
// Linking costs a path with one watch, the common case, nothing beside the stream, and lets a
// path with 100,000 watches lose any of them at once.
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

// remove takes a stream out and reports whether it was the last of its path.
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
