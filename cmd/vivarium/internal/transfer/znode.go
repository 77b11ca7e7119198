package transfer

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/vivarium-go/vivarium/cmd/vivarium/internal/client"
	"github.com/vivarium-go/vivarium/internal/wire"
)

// Inside the package a znode is named by its path below the subtree's root: "" is the root itself,
// and "/a" its child. So both sides have the same names.

// at returns the path of a name in the whole tree of a side.
func (s *side) at(name string) string {
	switch {
	case s.Path != "/":
		return s.Path + name
	case name == "":
		return "/"
	}
	return name
}

// reserved reports whether a path belongs to the ensemble itself.
func reserved(path string) bool {
	return path == "/zookeeper" || strings.HasPrefix(path, "/zookeeper/")
}

// parent returns the name of the parent. The root has none.
func parent(name string) string { return name[:strings.LastIndexByte(name, '/')] }

// A stamp changes with a znode's data and ACL, and when another znode takes its place. The zero
// stamp is that of no znode.
type stamp struct {
	czxid, mzxid int64
	aversion     int32
}

func stampOf(s *wire.Stat) stamp { return stamp{s.Czxid, s.Mzxid, s.Aversion} }

// A znode is what is copied of one.
type znode struct {
	stamp
	data      []byte
	acl       []wire.ACL
	ephemeral bool
}

// These say what a read has found instead of a znode.
var (
	errAbsent  = errors.New("there is no such znode")
	errHidden  = errors.New("its ACL shows no digests without Admin or the superuser's credential")
	errNoPlace = errors.New("/zookeeper of the target is the ensemble's own")
)

// A blockedError says why a server does not show a znode, or does not take it.
type blockedError struct{ cause error }

func (e *blockedError) Error() string { return e.cause.Error() }
func (e *blockedError) Unwrap() error { return e.cause }

// blocked makes the errors that concern one znode blockedErrors. It leaves those of the side as a
// whole, such as the end of the context, as they are.
func blocked(err error) error {
	var lost *lostError
	var invalid client.PathError
	switch code := client.CodeOf(err); {
	case err == nil:
		return nil
	case code == wire.NoNode:
		return errAbsent
	case code == wire.AuthFailed || code == wire.SessionExpired:
		return err
	case code != wire.OK, errors.As(err, &lost), errors.As(err, &invalid), err == errHidden:
		return &blockedError{err}
	}
	return err
}

// read reads a znode. Of an ephemeral it tells only that. The error is errAbsent, a blockedError or
// the end of everything. What is reserved is absent.
func (s *side) read(ctx context.Context, name string) (znode, error) {
	if reserved(s.at(name)) {
		return znode{}, errAbsent
	}
	for {
		r, _, err := s.do(ctx, wire.Operation{Op: wire.OpGetData, Path: s.at(name)})
		if err != nil {
			return znode{}, blocked(err)
		}
		if r.Stat.EphemeralOwner != 0 {
			return znode{ephemeral: true}, nil
		}
		a, _, err := s.do(ctx, wire.Operation{Op: wire.OpGetACL, Path: s.at(name)})
		if err != nil {
			return znode{}, blocked(err)
		}
		if a.Stat.Czxid != r.Stat.Czxid {
			continue // deleted and created between the two
		}
		z := znode{stamp: stampOf(&r.Stat), data: r.Data, acl: a.ACL}
		z.aversion = a.Stat.Aversion
		if hidden(z.acl) {
			return z, blocked(errHidden)
		}
		return z, nil
	}
}

// hidden reports whether a server has put an x in the place of a digest.
func hidden(acl []wire.ACL) bool {
	for _, a := range acl {
		if a.Scheme == "digest" && strings.HasSuffix(a.ID, ":x") {
			return true
		}
	}
	return false
}

// list returns the names of the children, without what is reserved, and the Stat. Its errors are
// those of read.
func (s *side) list(ctx context.Context, name string) ([]string, wire.Stat, error) {
	if reserved(s.at(name)) {
		return nil, wire.Stat{}, errAbsent
	}
	r, _, err := s.do(ctx, wire.Operation{Op: wire.OpGetChildren2, Path: s.at(name)})
	if err != nil {
		return nil, wire.Stat{}, blocked(err)
	}
	var names []string
	for _, child := range r.Names {
		if child = name + "/" + child; !reserved(s.at(child)) {
			names = append(names, child)
		}
	}
	return names, r.Stat, nil
}

// sync waits until the server has caught up with its ensemble.
func (s *side) sync(ctx context.Context) error {
	if _, _, err := s.do(ctx, wire.Operation{Op: wire.OpSync, Path: s.Path}); err != nil {
		return fmt.Errorf("%s: sync: %w", s.name, err)
	}
	return nil
}
