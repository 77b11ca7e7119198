package election

// PlaceErr says why a leader's znode is the leader's no more.
func PlaceErr(l *Leadership) error { return l.contender.Claim.Err() }
