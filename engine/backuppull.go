package engine

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/vivarium-go/vivarium/replication/transport"
)

// A member also gives its backup to a process that is no member. That process pulls it, a part with
// each question, because an answer has a bounded size. A part is asked for again if its answer was
// lost.

const (
	// pullPart is the size of a part. As base64 it fits in an answer.
	pullPart = 512 << 10
	// pullIdle is how long a member waits for the next question.
	pullIdle = 30 * time.Second
	// pullTries is how often a part is asked for.
	pullTries = 5
)

// A backupAsk asks for a part of a backup.
type backupAsk struct {
	ID   [16]byte // random, the same for all parts
	Part uint64   // from 0
}

// A backupPart is a part of a backup.
type backupPart struct {
	Data []byte
	Last bool // the backup is whole
}

// A pull is a backup that somebody pulls.
type pull struct {
	id    [16]byte
	parts chan backupPart
	over  chan struct{} // closed when there are no more
	err   error         // why; nil if all were given. Set before over
	idle  *time.Timer   // ends it

	// Owned by whoever has taken the pull from Engine.pulled.
	at  uint64 // the part that was given last
	now backupPart
}

// errPulled refuses a second pull. One is enough: its reader decides how long it takes.
var errPulled = errors.New("somebody else has a backup made here: ask again later, or another member")

// errPulledIdle ends a pull.
var errPulledIdle = fmt.Errorf("the backup was given up, because nobody asked for more of it in %v: begin anew", pullIdle)

// errPulledWhole refuses a part after the last.
var errPulledWhole = errors.New("the backup has no more parts")

// give answers a backupAsk.
func (e *Engine) give(ctx context.Context, ask *backupAsk) (*backupPart, error) {
	if e.cfg.Admit != nil {
		return nil, fmt.Errorf("Config.Admit of member %d decides who may have the data, so it gives no backup to strangers: call Node.Backup there", e.self())
	}
	select { // one question at a time
	case p := <-e.pulled:
		next, part, err := e.giveNext(ctx, p, ask)
		e.pulled <- next
		return part, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// giveNext returns the part that is asked for, and the pull that goes on.
func (e *Engine) giveNext(ctx context.Context, p *pull, ask *backupAsk) (*pull, *backupPart, error) {
	if p != nil && p.id != ask.ID && !isDone(p.over) {
		return p, nil, errPulled
	}
	if ask.Part == 0 && (p == nil || p.id != ask.ID) {
		p = e.newPull(ask.ID)
	}
	switch {
	case p == nil || p.id != ask.ID:
		return p, nil, errPulledIdle
	case ask.Part == p.at: // it is the first, or its answer was lost
		p.idle.Reset(pullIdle)
		part := p.now
		return p, &part, nil
	case ask.Part != p.at+1:
		return p, nil, fmt.Errorf("part %d of a backup after part %d", ask.Part, p.at)
	}
	p.idle.Reset(pullIdle)
	select {
	case part := <-p.parts:
		p.at, p.now = ask.Part, part
		if part.Last {
			<-p.over // else the backup that is asked for next would meet one that is still there
		}
		return p, &part, nil
	case <-p.over:
		return p, nil, cmp.Or(p.err, errPulledWhole)
	case <-ctx.Done():
		return p, nil, ctx.Err()
	}
}

// newPull begins a backup. Its part 0 is empty.
func (e *Engine) newPull(id [16]byte) *pull {
	ctx, cancel := context.WithCancel(context.Background()) // it ends with the node, too
	p := &pull{id: id, parts: make(chan backupPart), over: make(chan struct{}), idle: time.AfterFunc(pullIdle, cancel)}
	go func() {
		defer cancel()
		defer p.idle.Stop()
		defer close(p.over)
		w := partWriter{ctx: ctx, done: e.done, to: p.parts}
		if _, p.err = e.Backup(ctx, &w); p.err == nil {
			p.err = w.give(true)
		}
		if ctx.Err() != nil {
			p.err = errPulledIdle
		}
	}()
	return p
}

// A partWriter makes parts of what is written.
type partWriter struct {
	ctx  context.Context
	done <-chan struct{}
	to   chan<- backupPart
	part []byte
}

func (w *partWriter) Write(b []byte) (n int, err error) {
	for len(b) > 0 {
		take := min(len(b), pullPart-len(w.part))
		w.part, b, n = append(w.part, b[:take]...), b[take:], n+take
		if len(w.part) == pullPart {
			if err := w.give(false); err != nil {
				return n, err
			}
		}
	}
	return n, nil
}

// give waits until the part is asked for.
func (w *partWriter) give(last bool) error {
	select {
	case w.to <- backupPart{w.part, last}:
		w.part = nil // it may be asked for again
		return nil
	case <-w.done:
		return ErrClosed
	case <-w.ctx.Done():
		return w.ctx.Err()
	}
}

// AskBackup has a member make a backup, and writes it to w. It asks one that does not lead, if one
// answers. Only nil says that w has a backup.
func AskBackup(ctx context.Context, cfg Config, w io.Writer) error {
	v := newVisitor(cfg)
	defer v.transport.Close()
	to, err := v.follower(ctx, cfg.Ensemble)
	if err != nil {
		return err
	}
	ask := backupAsk{}
	rand.Read(ask.ID[:]) // never fails
	for {
		part, err := v.askPart(ctx, to, ask)
		if err != nil {
			return err
		}
		if _, err := w.Write(part.Data); err != nil {
			return err
		}
		if part.Last {
			return nil
		}
		ask.Part++
	}
}

// askPart asks for a part until there is an answer.
func (v *visitor) askPart(ctx context.Context, to transport.Target, part backupAsk) (*backupPart, error) {
	for try := 1; ; try++ {
		a, err := ask(ctx, v.transport, to, question{Backup: &part})
		switch {
		case err == nil && a.Refused != "":
			return nil, fmt.Errorf("%s makes no backup: %s", a.who(), a.Refused)
		case err == nil && a.Backup == nil:
			return nil, fmt.Errorf("the build of %s gives no backups: start a newer one there", a.who())
		case err == nil:
			return a.Backup, nil
		case try == pullTries || ctx.Err() != nil:
			return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// follower returns a member of the ensemble that answers, and that does not lead if there is one.
func (v *visitor) follower(ctx context.Context, ensemble string) (best transport.Target, err error) {
	var errs []error
	for _, name := range v.seeds {
		targets, err := v.network.Resolve(ctx, name)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		}
		for _, to := range targets {
			bound, cancel := context.WithTimeout(ctx, askTime)
			a, err := ask(bound, v.transport, to, question{})
			cancel()
			switch {
			case err != nil:
				errs = append(errs, fmt.Errorf("%s: %w", to.Address, err))
			case a.Member == 0:
				errs = append(errs, fmt.Errorf("%s: the node there has yet to join", to.Address))
			case a.Ensemble != ensemble:
				return best, fmt.Errorf("%s is of the ensemble %q, the config says %q: check Join and Ensemble", a.who(), a.Ensemble, ensemble)
			case a.Leader != a.Member:
				return to, nil
			case best == transport.Target{}:
				best = to
			}
		}
	}
	if best != (transport.Target{}) {
		return best, nil
	}
	return best, fmt.Errorf("%w: %w", ErrUnavailable, errors.Join(errs...))
}
