package embed

import (
	"errors"

	"github.com/vivarium-go/vivarium/embed/internal/inside"
	"github.com/vivarium-go/vivarium/engine"
	"github.com/vivarium-go/vivarium/tree"
	"github.com/vivarium-go/vivarium/watch"
)

// Answers of the data: the request reached the tree and was refused by a rule of it. Nothing was changed. The rules and
// names are ZooKeeper's.
var (
	ErrNoNode                  = tree.ErrNoNode                  // the znode, or the parent of one to be created, does not exist
	ErrNodeExists              = tree.ErrNodeExists              // a znode of that path exists already
	ErrBadVersion              = tree.ErrBadVersion              // the data version is not the expected one
	ErrNotEmpty                = tree.ErrNotEmpty                // a znode with children cannot be deleted
	ErrNoChildrenForEphemerals = tree.ErrNoChildrenForEphemerals // the parent is an ephemeral
	ErrNoAuth                  = tree.ErrNoAuth                  // the ACL allows it to none of the session's identities
	ErrInvalidACL              = tree.ErrInvalidACL              // the list is empty, or an entry is of an unknown scheme or id, or stands for nobody
	ErrQuotaExceeded           = tree.ErrQuotaExceeded           // a hard limit on the subtree
	ErrTooManyChildren         = tree.ErrTooManyChildren         // more than an OpCheckChildren allows; nothing of the Multi was applied
)

// Requests that were refused before anything was sent.
var (
	ErrInvalidPath     = tree.ErrInvalidPath       // the path breaks a rule; the text says which
	ErrInvalidMode     = tree.ErrInvalidMode       // no such mode of a create or a watch
	ErrInvalidTTL      = tree.ErrInvalidTTL        // a TTL out of range, or with a mode that can have none
	ErrInvalidArgument = inside.ErrInvalidArgument // a number or an option that is out of range, or nothing where something must be given; the text says which
	ErrCrossShard      = engine.ErrCrossShard      // operations of one Multi belong to several shards, or one to all of them
	ErrTooLarge        = engine.ErrTooLarge        // the data is over Config.MaxDataSize, a path over 64 KiB, or the transaction over what fits in a log entry
)

// ErrAuthFailed is what NewSession answers to a credential that proves nothing, or of a scheme that is not known.
var ErrAuthFailed = errors.New("authentication failed")

// Lifetimes.
var (
	ErrSessionExpired = engine.ErrSessionExpired // the session ended for its silence, or had ended when the request was applied
	ErrSessionClosed  = engine.ErrSessionClosed  // the session was closed
	ErrNoSession      = engine.ErrNoSession      // Session.Member: no session of that id is open
	ErrSuspended      = engine.ErrSuspended      // the session is past its local deadline: what it held is lost
	ErrDeleted        = engine.ErrDeleted        // somebody else deleted the claimed znode
	ErrNotHeld        = tree.ErrNotHeld          // the claim of a guard has ended, or what was claimed is not there to be given back; nothing of the Multi was applied
	ErrReleased       = engine.ErrReleased       // the claim was given up by its owner
	ErrWatchOverflow  = watch.ErrOverflow        // the watch's consumer let its buffer fill up
	ErrWatchGap       = watch.ErrGap             // a snapshot took the place of changes that the watch may have missed
	ErrClosed         = engine.ErrClosed         // the node is closed; the request was not applied
	ErrFailed         = engine.ErrFailed         // the node has failed, see Node.Err; the request was not applied
)

// Outcomes that are not known from the tree. They never mix.
var (
	// ErrUnavailable says that the ensemble could not be asked: a quorum did not take the request
	// in time, or too many requests wait on this node already. A write was not applied and never
	// will be. It is safe to try again, after a pause. Reads of this node's replica never end with
	// it; Sync, which waits for a quorum, may. If the node knows of no leader, the text says what
	// is missing, as Node.Ready does. So do the texts of ErrUnknownOutcome and of a ctx that ended.
	ErrUnavailable = engine.ErrUnavailable
	// ErrUnknownOutcome says that the request was sent and its caller stopped waiting. The request
	// may have been applied, or may yet be, at most once. Check before you try again. It also
	// matches the ctx's error if the ctx ended.
	ErrUnknownOutcome = engine.ErrUnknownOutcome
)

// An OpError says which operation on which path ended with an error. Test the cause with errors.Is.
type OpError struct {
	Op   string // "create", "get", …
	Path string // empty where there is none
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
