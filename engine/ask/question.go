package ask

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/vivarium-go/vivarium/engine/outbox"
	"github.com/vivarium-go/vivarium/replication"
	"github.com/vivarium-go/vivarium/replication/transport"
	"github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/tree"
)

// MemberID identifies a member.
type MemberID = replication.MemberID

// Bounds of what each member says of itself, in bytes. Every member keeps it.
const (
	NameMax    = 256 // of a name and of a zone
	AddressMax = 300
)

// A Question is what a node asks another one that it may not know. It travels as JSON, so that a
// later build can add to it.
type Question struct {
	Join      bool // the node wants to be a member
	List      bool // somebody wants to see the members with ids above After, as many as an answer holds
	After     session.MemberID
	Remove    MemberID // not zero: a member wants this one to be removed
	Leave     MemberID // not zero: this member wants to be out
	Reconfig  *Reconfig
	Backup    *BackupAsk
	Directory [16]byte // of the node
	// Lineage is that of the ensemble that is meant, if the node knows it. Ids of members mean others
	// in another one, and an address may have become that of another one's member.
	Lineage session.Lineage
	Former  replication.Former

	// What must be the same on all members.
	Ensemble string
	Shards   int
	Tick     time.Duration
	Levels   transport.Levels
	Schemes  []string

	// As whom it may found the ensemble, if the others want the same.
	Founder  MemberID
	Founders []MemberID
	Met      bool // it knows the directories of all founders

	// What it says of itself, as in Config.
	Name, Zone, Address string
	Observer            bool
}

// An Answer says who answers and what it knows of its ensemble.
type Answer struct {
	Directory [16]byte
	Address   string
	Member    MemberID // zero: it has yet to join or to found an ensemble itself
	// Was is the member of this ensemble whose directory it has, if Member is zero: it was that one, or
	// will be when it has started. Zero: none.
	Was MemberID

	Ensemble string
	Shards   int
	Founder  MemberID // as whom it may found
	Founders []MemberID
	Lineage  session.Lineage // zero: not chosen yet, or not known here
	// Ancestors are the lineages that forced recoveries have ended.
	Ancestors []session.Lineage

	// Directories are those of all founders with which it founds, or has founded, and is in no lineage
	// yet. They never change while it runs.
	Directories map[MemberID][16]byte

	Members map[MemberID]string // where the members may be, itself included
	Leader  MemberID            // of the home shard; zero: it knows of none

	List   []Member    // of a question for the members
	More   bool        // there are others behind those in List
	Backup *BackupPart // of a question for a part of a backup

	// Of a question to join.
	Refused  string   // why not; also of a removal and a leave
	Admitted MemberID // the asking node's id
	Done     bool     // of a removal, a leave or a Reconfig: the leader has done or judged what was asked
	Later    bool     // of the same: it has proposed nothing, and may be asked again; see ErrLater
	// Why a removal, a leave or a Reconfig was refused; see refusals.
	Unsafe, Changed, UnderWay, NoMember, Observes, Unavailable bool
}

// listPart bounds the bytes of a list of members in one answer.
const listPart = 256 << 10

// Tell answers with the members that a question is for, of all of them by their ids.
func (a *Answer) Tell(q *Question, all []Member) {
	size := 0
	for _, m := range all {
		if m.ID <= q.After {
			continue
		}
		text, _ := json.Marshal(m) // there is nothing in it that JSON cannot say
		if size += len(text); size > listPart {
			a.More = true
			return
		}
		a.List = append(a.List, m)
	}
}

// IsNot returns why this answer is of no use to who means the ensemble of another lineage.
func (a *Answer) IsNot(meant session.Lineage) error {
	return fmt.Errorf("%s is of lineage %v, which is another ensemble than that of %v: the address that somebody has for a member there is wrong (Advertise), or has become another's", a.Who(), a.Lineage, meant)
}

// refusals returns the errors that callers tell apart, each with the field that says it.
func (a *Answer) refusals() map[error]*bool {
	return map[error]*bool{ErrUnsafe: &a.Unsafe, ErrConfigChanged: &a.Changed, ErrReconfiguring: &a.UnderWay,
		session.ErrNotMember: &a.NoMember, session.ErrObserver: &a.Observes, outbox.ErrUnavailable: &a.Unavailable}
}

// Refuse answers with an error.
func (a *Answer) Refuse(err error) {
	a.Refused = err.Error()
	for kind, is := range a.refusals() {
		*is = errors.Is(err, kind)
	}
}

// Refusal returns the error with which the leader has answered, or nil. It is of the same kinds
// there and here.
func (a *Answer) Refusal() error {
	if a.Refused == "" {
		return nil
	}
	r := &refusal{text: a.Refused}
	for kind, is := range a.refusals() {
		if *is {
			r.kinds = append(r.kinds, kind)
		}
	}
	return r
}

// A refusal is an error of another member.
type refusal struct {
	text  string
	kinds []error
}

func (r *refusal) Error() string   { return r.text }
func (r *refusal) Unwrap() []error { return r.kinds }

// Who names the member that answers, and where it is if it says so.
func (a *Answer) Who() string {
	if a.Address == "" {
		return fmt.Sprintf("member %d", a.Member)
	}
	return fmt.Sprintf("member %d at %s", a.Member, a.Address)
}

// A Member is what a node knows of a member of the ensemble.
type Member struct {
	session.Member
	Answers bool   // its replica of the home shard answered within two longest elections; only the leader knows
	Behind  uint64 // entries of the home shard that it has not acknowledged, if Answers
}

// A BackupAsk asks for a part of a backup.
type BackupAsk struct {
	ID   [16]byte // random, the same for all parts
	Part uint64   // from 0
}

// A BackupPart is a part of a backup.
type BackupPart struct {
	Data []byte
	Last bool // the backup is whole
}

// A Reconfig is a change of the members that a person asks for.
type Reconfig struct {
	Version tree.Zxid  // the Mzxid of tree.ConfigPath for which it is meant; zero: any
	Promote []MemberID // learners that are to vote
	Remove  []MemberID // members that are to be out
}
