package recipetest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/election"
	"github.com/vivarium-go/vivarium/embed/lock"
)

// register returns the path of the znode that the lock on a path protects. Its data begins with the
// token of the last writer.
func register(path string) string { return path + "-register" }

// held is what a Hold and a leadership have in common.
type held interface {
	hold
	Path() string
	Token() lock.Token
	Revoked() <-chan struct{}
	Release() error
}

// guard returns the operation that is refused unless h is still held.
func guard(h held) embed.Op {
	if l, ok := h.(leadership); ok {
		return election.Guard(l.Leadership)
	}
	return lock.Guard(h.(*lock.Hold))
}

// A holder uses a Hold: it reads and writes the registers of its paths.
type holder struct {
	*caller
	session *embed.Session
	hold    held
	grant   *grant

	// versions has the versions of the registers, as far as they are known: nobody else can change
	// a register while the Hold lasts. A write in flight whose outcome nobody waits for may be
	// applied at any time, so from then on the versions are unknown, and blind is set.
	versions map[string]int32
	blind    bool
	sent     []sent
}

// sent is a write in flight.
type sent struct {
	*embed.Pending
	ended bool // the Hold had ended before it was sent
}

func (c *caller) holder(s *embed.Session, h held, g *grant) *holder {
	return &holder{caller: c, session: s, hold: h, grant: g, versions: make(map[string]int32)}
}

// use uses the Hold.
func (h *holder) use() {
	h.look()
	switch n := h.rng.IntN(12); {
	// Keep it until the next fault has come and gone.
	case n == 0 && !slices.Contains(h.kind.hot, h.grant.paths[0]):
		h.cling(2)
		h.submit()
	case n == 1: // keep it until some more events have happened
		h.pass(1+h.rng.IntN(callersOf), 20*time.Millisecond)
	}
	for range h.rng.IntN(4) {
		if !h.work() { // its member is in trouble: keep the Hold to see when it ends
			h.cling(1)
		}
	}
	if h.rng.IntN(4) == 0 {
		h.submit() // it may be in flight when the Hold ends
	}
}

// look reads the registers.
func (h *holder) look() {
	if h.grant.mode == counted {
		return
	}
	for _, path := range h.grant.paths {
		data, stat, err := h.session.Get(h.ctx, register(path))
		if err != nil {
			h.expect(err)
			continue
		}
		// With a kept lock, a write of the last Hold may be in flight ahead.
		if !h.kind.keeps && !h.blind {
			h.versions[path] = stat.Version
		}
		var token lock.Token
		if text, _, ok := strings.Cut(string(data), " "); ok {
			must(h.t, token.UnmarshalText([]byte(text)))
		}
		h.model.read(h.grant, path, token)
	}
}

// ops returns a guarded access to the registers of all paths at once.
func (h *holder) ops() []embed.Op {
	h.accesses.Add(1)
	ops := []embed.Op{guard(h.hold)}
	for _, path := range h.grant.paths {
		version, ok := h.versions[path]
		if !ok {
			version = embed.AnyVersion
		}
		if h.grant.mode == shared {
			ops = append(ops, embed.OpCheck(register(path), version))
		} else {
			ops = append(ops, embed.OpSet(register(path), []byte(h.grant.token.String()+" "+h.grant.who), version))
		}
	}
	return ops
}

// work accesses the registers and waits for the outcome. It returns false if the outcome is unknown
// or nothing was applied.
func (h *holder) work() bool {
	if h.rng.IntN(4) == 0 {
		return h.elsewhere()
	}
	return h.access(h.session)
}

// elsewhere does the same by a session of another member, which the Hold may guard too.
func (h *holder) elsewhere() bool {
	sl := pick(h.rng, h.slots...)
	if sl.member == h.member || h.kind.keeps {
		return true
	}
	s := h.open(sl)
	return s == nil || h.access(s)
}

func (h *holder) access(s *embed.Session) bool {
	ended := h.hold.Err() != nil
	results, err := s.Multi(h.ctx, h.ops()...)
	return h.outcome(ended, results, err)
}

// cling keeps the Hold until that many faults have begun, or until it has ended; perhaps also until
// somebody revokes it. Meanwhile it accesses the registers through other members, because this
// member may not hear what the ensemble has decided.
func (h *holder) cling(faults int) {
	var revoked <-chan struct{}
	if h.rng.IntN(2) == 0 {
		revoked = h.hold.Revoked()
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	fault := *h.fault.Load()
	for faults > 0 {
		select {
		case <-fault:
			faults--
			fault = *h.fault.Load()
			continue
		case <-tick.C:
			h.elsewhere()
			continue
		case <-h.hold.Done():
			h.elsewhere()
		case <-revoked:
		case <-h.last.Done():
		}
		return
	}
}

// submit sends an access and does not wait.
func (h *holder) submit() {
	ended := h.hold.Err() != nil
	if h.grant.mode != shared {
		h.forget()
	}
	h.sent = append(h.sent, sent{h.session.Submit(h.ctx, h.ops()...), ended})
}

// drain waits for all accesses in flight.
func (h *holder) drain() {
	for _, p := range h.sent {
		results, err := p.Result()
		_ = h.outcome(p.ended, results, err)
	}
}

// outcome checks the outcome of an access against what the Hold promises. It returns false if the
// outcome is unknown or nothing was applied.
func (h *holder) outcome(ended bool, results []embed.Result, err error) bool {
	switch {
	case err == nil && h.grant.mode != shared:
		for i, path := range h.grant.paths {
			stat := results[1+i].Stat
			if h.grant.mode == alone && !h.blind {
				h.versions[path] = stat.Version
			}
			h.model.wrote(h.grant, path, stat.Mzxid, ended)
		}
	case err == nil && ended:
		h.t.Errorf("%v had ended and its guarded check passed", h.grant)
	case err == nil:
	case errors.Is(err, embed.ErrNotHeld):
		if h.hold.Err() == nil && !h.model.tookAny(h.grant.paths...) {
			h.t.Errorf("%v holds, but a guarded access was refused: %v", h.grant, err)
		}
	case errors.Is(err, embed.ErrBadVersion):
		h.t.Errorf("%v holds, but somebody else wrote: %v", h.grant, err)
	default:
		if h.grant.mode != shared {
			h.forget()
		}
		h.expect(err)
		return false
	}
	return true
}

func (h *holder) forget() {
	clear(h.versions)
	h.blind = true
}

// expect checks that an error is one that a fault may cause.
func (h *holder) expect(err error) {
	for _, known := range []error{embed.ErrUnavailable, embed.ErrUnknownOutcome, embed.ErrSuspended, embed.ErrSessionExpired,
		embed.ErrSessionClosed, embed.ErrClosed, embed.ErrFailed, context.Canceled} {
		if errors.Is(err, known) {
			return
		}
	}
	h.t.Errorf("%v: unexpected: %v", h.grant, err)
}

// release releases the Hold, perhaps several times at once.
func (h *holder) release() {
	var others sync.WaitGroup
	for range h.rng.IntN(3) {
		others.Go(func() { _ = h.hold.Release() })
	}
	err := h.hold.Release()
	h.model.released(h.grant, err)
	others.Wait()
	if err != nil {
		h.expect(err)
		return
	}
	if again := h.hold.Release(); again != nil {
		h.t.Errorf("%v was released, and then again: %v", h.grant, again)
	}
	// Another candidate that was elected to the same place has the same name.
	if stat, there, _ := h.session.Exists(h.ctx, h.grant.znode); there && stat.Czxid == max(h.grant.token.Zxid, embed.Zxid(h.grant.token.Local)) && !h.kind.keeps && errors.Is(h.hold.Err(), embed.ErrReleased) {
		h.t.Errorf("%v was released and stands in the queue", h.grant)
	}
}
