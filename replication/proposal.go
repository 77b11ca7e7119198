package replication

import (
	"sync/atomic"
	"time"

	"github.com/lni/dragonboat/v4"
)

// Proposal is a command on its way.
type Proposal struct {
	rs      *dragonboat.RequestState
	dropped atomic.Bool
}

// proposalTimeout is how long dragonboat remembers a proposal in order to report its result. It
// only bounds memory. The caller has to notice lost commands.
const proposalTimeout = time.Minute

// Propose gives a command to Raft and returns at once. The command comes back through Apply, or is
// lost. Dropped reports some losses; of others nobody hears. cmd may be reused after return. Every
// error means that cmd was certainly not proposed and never will be: ErrNoLeader, ErrBusy,
// ErrTooLarge, ErrClosed, ErrFailed.
func (h *Host) Propose(id ShardID, cmd []byte) (*Proposal, error) {
	s, err := h.running(id)
	if err != nil {
		return nil, err
	}
	if len(cmd) == 0 || len(cmd) > CommandMax {
		return nil, ErrTooLarge
	}
	p := &Proposal{}
	err = h.call(func() (err error) {
		switch {
		case isClosed(h.cfg.Disk.Failed()):
			return ErrFailed
		case s.leader().Member == 0:
			return ErrNoLeader
		}
		p.rs, err = h.nh.Propose(s.session, mask(cmd), proposalTimeout)
		return translate(err)
	})
	if err != nil {
		return nil, err
	}
	return p, nil
}

// Dropped reports whether dragonboat has dropped the command, so that it is certainly not applied
// and never will be. It does not block. If Dropped returns false, the outcome is unknown.
func (p *Proposal) Dropped() bool {
	select {
	case r := <-p.rs.AppliedC():
		if r.Dropped() {
			p.dropped.Store(true)
		}
	default:
	}
	return p.dropped.Load()
}
