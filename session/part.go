package session

// Votes reports whether a member votes on a shard, as far as the table knows. A founder votes from
// the start; its place is reported later.
func (m *Member) Votes(shard uint32) bool {
	part := m.place(shard).Part
	return part == Voter || part == 0 && m.Wish == Voter
}

// OutOf returns how many shards the member is out of.
func (m *Member) OutOf() (n int) {
	for _, p := range m.Places {
		if p.Part == Out {
			n++
		}
	}
	return n
}
