package backups

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/vivarium-go/vivarium/engine/ask"
	"github.com/vivarium-go/vivarium/engine/outbox"
)

// A member also gives its backup to a process that is no member. That process pulls it, a part with
// each question, because an answer has a bounded size. A part is asked for again if its answer was
// lost.

// A Maker makes backups of one node.
type Maker struct {
	Options
	pulled chan *pull // capacity 1; the backup that somebody pulls, or pulled last
}

// New returns a maker of backups.
func New(o Options) *Maker {
	m := &Maker{Options: o, pulled: make(chan *pull, 1)}
	m.pulled <- nil
	return m
}

const (
	// pullPart is the size of a part. As base64 it fits in an answer.
	pullPart = 512 << 10
	// pullIdle is how long a member waits for the next question.
	pullIdle = 30 * time.Second
)

// A pull is a backup that somebody pulls.
type pull struct {
	id    [16]byte
	parts chan ask.BackupPart
	over  chan struct{} // closed when there are no more
	err   error         // why; nil if all were given. Set before over
	idle  *time.Timer   // ends it

	// Owned by whoever has taken the pull from Maker.pulled.
	at  uint64 // the part that was given last
	now ask.BackupPart
}

func (p *pull) isOver() bool {
	select {
	case <-p.over:
		return true
	default:
		return false
	}
}

// errPulled refuses a second pull. One is enough: its reader decides how long it takes.
var errPulled = errors.New("somebody else has a backup made here: ask again later, or another member")

// errPulledIdle ends a pull.
var errPulledIdle = fmt.Errorf("the backup was given up, because nobody asked for more of it in %v: begin anew", pullIdle)

// errPulledWhole refuses a part after the last.
var errPulledWhole = errors.New("the backup has no more parts")

// Give answers a BackupAsk.
func (m *Maker) Give(ctx context.Context, wanted *ask.BackupAsk) (*ask.BackupPart, error) {
	if m.Private {
		return nil, fmt.Errorf("Config.Admit of member %d decides who may have the data, so it gives no backup to strangers: call Node.Backup there", m.Roster.Self())
	}
	select { // one question at a time
	case p := <-m.pulled:
		next, part, err := m.giveNext(ctx, p, wanted)
		m.pulled <- next
		return part, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// giveNext returns the part that is asked for, and the pull that goes on.
func (m *Maker) giveNext(ctx context.Context, p *pull, wanted *ask.BackupAsk) (*pull, *ask.BackupPart, error) {
	if p != nil && p.id != wanted.ID && !p.isOver() {
		return p, nil, errPulled
	}
	if wanted.Part == 0 && (p == nil || p.id != wanted.ID) {
		p = m.newPull(wanted.ID)
	}
	switch {
	case p == nil || p.id != wanted.ID:
		return p, nil, errPulledIdle
	case wanted.Part == p.at: // it is the first, or its answer was lost
		p.idle.Reset(pullIdle)
		part := p.now
		return p, &part, nil
	case wanted.Part != p.at+1:
		return p, nil, fmt.Errorf("part %d of a backup after part %d", wanted.Part, p.at)
	}
	p.idle.Reset(pullIdle)
	select {
	case part := <-p.parts:
		p.at, p.now = wanted.Part, part
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
func (m *Maker) newPull(id [16]byte) *pull {
	ctx, cancel := context.WithCancel(context.Background()) // it ends with the node, too
	p := &pull{id: id, parts: make(chan ask.BackupPart), over: make(chan struct{}), idle: time.AfterFunc(pullIdle, cancel)}
	go func() {
		defer cancel()
		defer p.idle.Stop()
		defer close(p.over)
		w := partWriter{ctx: ctx, done: m.Done, to: p.parts}
		if _, p.err = m.Backup(ctx, &w); p.err == nil {
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
	to   chan<- ask.BackupPart
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
	case w.to <- ask.BackupPart{Data: w.part, Last: last}:
		w.part = nil // it may be asked for again
		return nil
	case <-w.done:
		return outbox.ErrClosed
	case <-w.ctx.Done():
		return w.ctx.Err()
	}
}
