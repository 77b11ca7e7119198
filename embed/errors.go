package embed

import (
	"errors"

	"github.com/vivarium-go/vivarium/embed/internal/inside"
	"github.com/vivarium-go/vivarium/engine"
	"github.com/vivarium-go/vivarium/tree"
	"github.com/vivarium-go/vivarium/watch"
)

// Answers of the tree: the request reached the tree and broke a rule. Nothing was changed. The
// rules and names are ZooKeeper's.
var (
	ErrNoNode     = tree.ErrNoNode     // the znode, or the parent for a new znode, does not exist
	ErrNodeExists = tree.ErrNodeExists // the znode exists already
	ErrBadVersion = tree.ErrBadVersion // the znode has another version than the expected one
	ErrNotEmpty   = tree.ErrNotEmpty   // a znode with children cannot be deleted
	// ErrNoChildrenForEphemerals says that the parent is an ephemeral.
	ErrNoChildrenForEphemerals = tree.ErrNoChildrenForEphemerals
	// ErrNoAuth says that the ACL allows the request to none of the session's identities.
	ErrNoAuth = tree.ErrNoAuth
	// ErrInvalidACL says that the list is empty, or that an entry has an unknown scheme, an invalid
	// id, or stands for nobody.
	ErrInvalidACL    = tree.ErrInvalidACL
	ErrQuotaExceeded = tree.ErrQuotaExceeded // a hard limit of the subtree, or Config.MaxTreeSize
	// ErrTooManyChildren says that the znode has more children than an OpCheckChildren allows.
	ErrTooManyChildren = tree.ErrTooManyChildren
	// ErrNotNumber says that a znode's data is no number of the width that an OpAdd names.
	ErrNotNumber = tree.ErrNotNumber
	// ErrOverflow says that the sum of an OpAdd does not fit. Nothing was changed.
	ErrOverflow = tree.ErrOverflow
)

// Requests that were refused before anything was sent.
var (
	ErrInvalidPath = tree.ErrInvalidPath // the path breaks a rule; the text says which
	ErrInvalidMode = tree.ErrInvalidMode // a create or a watch has no such mode
	ErrInvalidTTL  = tree.ErrInvalidTTL  // the TTL is out of range, or the mode has none
	// ErrInvalidArgument says that a number or an option is out of range, or missing. The text says
	// which.
	ErrInvalidArgument = inside.ErrInvalidArgument
	// ErrCrossShard says that the operations of a Multi belong to several shards. A single one that
	// concerns all shards gets it too.
	ErrCrossShard = engine.ErrCrossShard
	// ErrTooLarge says that the data exceed Config.MaxDataSize, a path exceeds 64 KiB, or the
	// transaction does not fit in a log entry.
	ErrTooLarge = engine.ErrTooLarge
)

// ErrAuthFailed is NewSession's answer to a credential that proves nothing, or has an unknown
// scheme.
var ErrAuthFailed = errors.New("authentication failed")

// ErrLevel says that the ensemble's feature level does not fit. This build does not read it,
// Config.HoldLevel is below it, or a member keeps it down. The text says which, and what to do.
var ErrLevel = engine.ErrLevel

// ErrNotSeeded is Node.Ready's answer if Config.Seed is set and the ensemble has begun without it.
var ErrNotSeeded = engine.ErrNotSeeded

// Of members that come and go.
var (
	// ErrJoining says that this node has yet to join an ensemble, or to found one with the other
	// founders. The text says what it waits for. Calls fail with ErrUnavailable until then.
	ErrJoining = engine.ErrJoining
	// ErrRemoved says that this member is out of the ensemble for good. Node.Err says why. With
	// Config.Join the next Start joins as a new member, unless somebody removed this one.
	ErrRemoved = engine.ErrRemoved
	// ErrSuperseded says that a forced recovery has gone on without this member, under another
	// lineage; see docs/runbook.md. Node.Err says which. With Config.Join the next Start joins as a
	// new member, and drops what the directory has.
	ErrSuperseded = engine.ErrSuperseded
	// ErrUnsafe says that a change of the members would cost the quorum. Nothing was changed.
	ErrUnsafe = engine.ErrUnsafe
)

// Lifetimes: something has ended.
var (
	// ErrSessionExpired says that the session's timeout passed in silence, or that the session had
	// ended in any way when the request reached the tree. The request was not applied.
	ErrSessionExpired = engine.ErrSessionExpired
	ErrSessionClosed  = engine.ErrSessionClosed // the session was closed
	ErrNoSession      = engine.ErrNoSession     // Session.Member: no session of that id is open
	// ErrSuspended says that the session passed its local deadline, or that the wall clock of its
	// machine jumped by more than the margin. What the session held is lost.
	ErrSuspended = engine.ErrSuspended
	ErrDeleted   = engine.ErrDeleted // somebody else deleted the claimed znode
	// ErrNotHeld says that the claim of a guard has ended, or that the claim to be released is not
	// there. Nothing of the Multi was applied.
	ErrNotHeld       = tree.ErrNotHeld
	ErrReleased      = engine.ErrReleased // the owner released the claim
	ErrWatchOverflow = watch.ErrOverflow  // the watch's consumer let its buffer fill up
	// ErrWatchGap says that a snapshot replaced changes that the watch may have missed, that a SetACL
	// took or gave the permission to read a znode that the watch sees, or that the znode that it
	// watches was created without that permission.
	ErrWatchGap = watch.ErrGap
	ErrClosed   = engine.ErrClosed // the node is closed; the request was not applied
	ErrFailed   = engine.ErrFailed // the node has failed, see Node.Err; the request was not applied
)

// ErrSlowBackup says that Node.Backup was given up, because its writer took the data so slowly that
// the disk would have had to keep too much for it.
var ErrSlowBackup = engine.ErrSlowBackup

// Outcomes that do not come from the tree. They never mix.
var (
	// ErrUnavailable says that the ensemble could not be asked: no quorum accepted the request in
	// time, or too many requests wait on this node already. A write was not applied and never will
	// be. It is safe to try again after a pause. Reads of this node's replica never fail with it;
	// Sync, which waits for a quorum, may.
	//
	// If the node knows no leader, the text says what is missing, as that of Node.Ready does. So do
	// the texts of ErrUnknownOutcome and of a ctx that ended.
	ErrUnavailable = engine.ErrUnavailable
	// ErrUnknownOutcome says that the request was sent, and this node cannot tell its outcome. The
	// caller stopped waiting, the node or the session ended, or a snapshot replaced the log. The
	// request may have been applied, or may yet be, at most once. Check before you try again. If
	// the ctx ended, the error also matches the ctx's error.
	ErrUnknownOutcome = engine.ErrUnknownOutcome
)

// An OpError says which operation on which path failed. Test the cause with errors.Is.
type OpError struct {
	Op   string // "create", "get", …
	Path string // empty if the operation has none
	Err  error
}

// Error returns the operation, the path and the cause.
func (e *OpError) Error() string {
	if e.Path == "" {
		return e.Op + ": " + e.Err.Error()
	}
	return e.Op + " " + e.Path + ": " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *OpError) Unwrap() error { return e.Err }

// renamed returns the error of one operation as that of another that was made of it.
func renamed(op string, err error) error {
	var made *OpError
	if errors.As(err, &made) {
		return &OpError{Op: op, Path: made.Path, Err: made.Err}
	}
	return err
}

// opError wraps an error in an OpError, unless it has one or is nil.
func opError(op, path string, err error) error {
	if err == nil {
		return nil
	}
	var already *OpError
	if errors.As(err, &already) {
		return err
	}
	return &OpError{Op: op, Path: path, Err: err}
}
