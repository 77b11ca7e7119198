package transport

// A role is what depends on who this member is. Become replaces it once, before dragonboat uses the
// transport. Handshakes may run at that moment; each sees either role.
type role struct {
	self     Identity
	founding string
	gate     gate
	promises *promises
}

func (t *Transport) newRole(self Identity, founding string) *role {
	if self.Levels == (Levels{}) {
		self.Levels = Levels{Min: 1, Max: 1}
	}
	r := &role{self: self, founding: founding, gate: newGate(self.Member, t.o.Shards), promises: newPromises(self.Member, t.o.Shards)}
	r.gate.learner = t.o.Learner
	return r
}

// Become gives an identity to the transport of a node that was no member yet. It is called before
// dragonboat gets the transport. A transport that has an identity keeps it.
func (t *Transport) Become(self Identity, founding string) {
	if before := t.role.Load(); before.self.Member == 0 {
		t.role.CompareAndSwap(before, t.newRole(self, founding))
	}
}

// self returns this member's identity. Its Member is zero before Become.
func (t *Transport) self() *Identity { return &t.role.Load().self }
