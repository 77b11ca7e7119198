package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/vivarium-go/vivarium/engine/ask"
	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/session"
)

// answer answers a question, at a member or at a node that has yet to join.
func (e *Engine) answer(ctx context.Context, asked []byte) []byte {
	var q ask.Question
	a := ask.Answer{Directory: e.Directory(), Address: e.cfg.Advertise, Ensemble: e.cfg.Ensemble, Shards: e.cfg.Shards}
	if err := json.Unmarshal(asked, &q); err != nil {
		a.Refused = fmt.Sprintf("the question cannot be read: %v", err)
	} else if e.host.Load() == nil {
		e.entry.Answer(&q, &a)
	} else {
		e.answerAsMember(ctx, &q, &a)
	}
	text, err := json.Marshal(a)
	if err != nil {
		return nil // there is nothing in an answer that JSON cannot say
	}
	return text
}

func (e *Engine) answerAsMember(ctx context.Context, q *ask.Question, a *ask.Answer) {
	a.Member, a.Founders, a.Lineage, a.Leader = e.roster.Self(), e.roster.Founders(), e.roster.Lineage(), e.Leader(command.HomeShard).Member
	a.Ancestors = e.roster.Ancestors()
	if a.Lineage == (session.Lineage{}) {
		a.Directories = e.entry.FoundedWith()
	}
	a.Members = make(map[MemberID]string)
	for _, m := range e.roster.MemberIDs() {
		if address := e.roster.Address(m); address != "" {
			a.Members[m] = address
		}
	}
	if q.List {
		a.Tell(q, e.Members())
	}
	if q.Backup != nil {
		part, err := e.backups.Give(ctx, q.Backup)
		if a.Backup = part; err != nil {
			a.Refuse(err)
		}
		return
	}
	if a.Leader != a.Member || e.identity.Now().Recovered {
		a.Later = true
		return // only the leader admits and removes: it knows who answers
	}
	var err error
	switch {
	case q.Lineage != (session.Lineage{}) && q.Lineage != a.Lineage:
		err = a.IsNot(q.Lineage)
	case q.Join:
		a.Admitted, err = e.governor.Admit(ctx, q)
	case q.Remove != 0, q.Leave != 0, q.Reconfig != nil:
		a.Done, err = e.governor.Change(ctx, q)
	}
	switch {
	case errors.Is(err, ask.ErrLater):
		a.Later = true
	case err != nil && e.over() == nil: // else who asks looks for another leader
		a.Refuse(err)
	}
}

// Directory returns the id of this node's directory.
func (e *Engine) Directory() [16]byte { return e.identity.Now().Directory }
