package election

// PlaceErr returns why the leader's znode is no longer the leader's.
func PlaceErr(l *Leadership) error { return l.contender.Claim.Err() }
