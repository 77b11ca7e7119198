package embed

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/vivarium-go/vivarium/engine"
	"github.com/vivarium-go/vivarium/tree"
)

// An AuditRecord says who has changed a znode, and when. It never contains data, passwords or
// digests.
//
// Every member records every change of the tree, when it applies it, whichever member was asked.
// So the records of any one member answer who deleted a znode, also if the member that was asked
// died right after the commit. An operation that the tree refused is recorded only on the member
// that was asked. A call that was never sent is recorded nowhere.
//
// Op is one of these:
//
//	create, set, add, setacl, delete   an operation of a session or, with a Why, of the ensemble
//	linger                             an ephemeral with a TTL has lost its session, and lingers
//	open, attach, close, expire        the life of a session; to expire is any end but by its owner
//	recover                            somebody went on without the majority; writes may be lost
//	start                              this member starts; what follows may repeat earlier records
//	gap                                this member lacks records
//
// A crash loses the records that still wait. After it, a member applies the newest part of its log
// again, and records it again. So a crash leaves repeats, and seldom a hole. Other members have
// what it lacks. A member that was away for long gets the state of another one instead of the log,
// and records a gap: it has never seen the changes in between.
type AuditRecord struct {
	Time  time.Time // by the clock of the member that was asked; of a start or gap by this member's
	Zxid  Zxid      // the transaction; zero if it was refused. Of a start, the newest one loaded
	Shard int       // from 1; zero for a gap of all shards

	Op   string
	Path string     // in the whole tree, also for a session with a Root; empty for a session's life
	Mode CreateMode // of a create by a session
	ACL  []ACL      // of a create or a setacl; of a digest only the user
	// Version is the one that a set, add or setacl made. If the operation was refused, it is the
	// one that it expected.
	Version int32

	// Session is the session that asked, or whose end changed the znode. Zero means none.
	Session SessionID
	// Member is the member that was asked, or that the session belonged to. Zero means none.
	Member MemberID
	// Client is the address of a gateway's client. It is empty for a session of the service.
	Client string
	// Identities are what the session has authenticated as, each with its scheme, such as
	// "ip:10.0.0.7" or "digest:alice".
	Identities []string

	// Why is why the ensemble did it by itself: "session closed", "session expired", "released",
	// "reaped" or "members changed". Of a gap it is what made it. Otherwise it is empty.
	Why string
	// Result is "ok", or why the operation was refused: a text of this package's errors, such as
	// that of ErrBadVersion. If another operation of its transaction was refused, "operation N: "
	// stands before it. N counts from 0, with the operations that the transaction made of claims and
	// parents.
	Result string

	After Zxid   // of a gap: records after this transaction and up to Zxid are missing
	Lost  uint64 // of a gap: how many records were left out, because Audit was slow
}

// resultOK is the Result of what was not refused.
const resultOK = "ok"

// newAuditRecord returns what an engine tells as the service sees it.
func newAuditRecord(a *engine.Audited) AuditRecord {
	return AuditRecord{
		Time: time.UnixMilli(a.Wall).UTC(), Zxid: a.Zxid, Shard: int(a.Shard),
		Op: a.Op, Path: a.Path, Mode: a.Mode, ACL: withoutDigests(a.ACL), Version: a.Version,
		Session: a.Session, Member: MemberID(a.Member), Client: clientOf(a.Identities), Identities: namesOf(a.Identities),
		Why: a.Why, Result: auditResult(a.Err), After: a.After, Lost: a.Lost,
	}
}

// clientOf returns the address with which a gateway's client has connected.
func clientOf(who []tree.Identity) string {
	for _, i := range who {
		if i.Scheme == ipScheme {
			return i.ID
		}
	}
	return ""
}

func namesOf(who []tree.Identity) []string {
	names := make([]string, len(who))
	for i, w := range who {
		names[i] = w.Scheme
		if id := withoutDigest(w.Scheme, w.ID); id != "" {
			names[i] += ":" + id
		}
	}
	return names
}

// withoutDigests returns a copy of an ACL that names users without their digests.
func withoutDigests(list []ACL) []ACL {
	if list == nil {
		return nil
	}
	out := make([]ACL, len(list))
	for i, a := range list {
		a.ID = withoutDigest(a.Scheme, a.ID)
		out[i] = a
	}
	return out
}

// withoutDigest returns an id without what helps to guess a password.
func withoutDigest(scheme, id string) string {
	if scheme == digestScheme {
		id, _, _ = strings.Cut(id, ":")
	}
	return id
}

// auditErrors are what a tree and a session table answer. Their texts alone are recorded: what may
// be wrapped around them can name data or digests.
var auditErrors = []error{
	ErrNoNode, ErrNodeExists, ErrBadVersion, ErrNotEmpty, ErrNoChildrenForEphemerals, ErrNoAuth, ErrInvalidACL,
	ErrQuotaExceeded, ErrTooManyChildren, ErrNotNumber, ErrOverflow, ErrInvalidPath, ErrInvalidMode, ErrInvalidTTL,
	ErrSessionExpired, tree.ErrNotHeld,
}

func auditResult(err error) string {
	if err == nil {
		return resultOK
	}
	var refused *MultiError
	if errors.As(err, &refused) {
		return "operation " + strconv.Itoa(refused.Index) + ": " + auditResult(refused.Err)
	}
	for _, known := range auditErrors {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	return "refused"
}

// String returns the record as a line for people.
func (r AuditRecord) String() string {
	b := fmt.Appendf(nil, "%s shard=%d zxid=%#x %s", r.Time.Format(time.RFC3339Nano), r.Shard, uint64(r.Zxid), r.Op)
	if r.Path != "" {
		b = fmt.Appendf(b, " %q", r.Path)
	}
	if r.Session != 0 {
		b = fmt.Appendf(b, " session=%#x", uint64(r.Session))
	}
	if r.Member != 0 {
		b = fmt.Appendf(b, " member=%d", r.Member)
	}
	if len(r.Identities) > 0 {
		b = fmt.Appendf(b, " who=%q", strings.Join(r.Identities, ","))
	}
	if r.Op == engine.AuditGap {
		b = fmt.Appendf(b, " after=%#x lost=%d", uint64(r.After), r.Lost)
	}
	if r.Why != "" {
		b = fmt.Appendf(b, " why=%q", r.Why)
	}
	if r.Result != resultOK {
		b = fmt.Appendf(b, " refused=%q", r.Result)
	}
	return string(b)
}
