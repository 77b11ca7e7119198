package native

import (
	"time"

	"github.com/vivarium-go/vivarium/internal/wire"
	"github.com/vivarium-go/vivarium/tree"
)

// AppendOps appends operations as they are on the wire.
func AppendOps(list []wire.NativeOp, ops []tree.Op) []wire.NativeOp {
	for i := range ops {
		o := &ops[i]
		list = append(list, wire.NativeOp{Kind: int32(o.Kind), Path: o.Path, Data: o.Data, Mode: int32(o.Mode), TTL: o.TTL, ACL: ToACL(o.ACL),
			Version: o.Version, Czxid: int64(o.Czxid), Mzxid: int64(o.Mzxid), Width: int32(o.Width), Delta: o.Delta})
	}
	return list
}

// Ops returns the operations of a request. They share its data.
func Ops(list []wire.NativeOp) []tree.Op {
	ops := make([]tree.Op, len(list))
	for i := range list {
		o := &list[i]
		ops[i] = tree.Op{Kind: tree.OpKind(o.Kind), Path: o.Path, Data: o.Data, Mode: tree.CreateMode(o.Mode), TTL: o.TTL, ACL: FromACL(o.ACL),
			Version: o.Version, Czxid: tree.Zxid(o.Czxid), Mzxid: tree.Zxid(o.Mzxid), Width: tree.Width(o.Width), Delta: o.Delta}
	}
	return ops
}

// AppendResults appends results as they are on the wire.
func AppendResults(list []wire.NativeResult, results []tree.Result) []wire.NativeResult {
	for i := range results {
		r := &results[i]
		list = append(list, wire.NativeResult{Kind: int32(r.Kind), Path: r.Path, Stat: ToStat(&r.Stat), Value: r.Value})
	}
	return list
}

// Results returns the results of an answer.
func Results(list []wire.NativeResult) []tree.Result {
	results := make([]tree.Result, len(list))
	for i := range list {
		r := &list[i]
		results[i] = tree.Result{Kind: tree.OpKind(r.Kind), Path: r.Path, Stat: FromStat(&r.Stat), Value: r.Value}
	}
	return results
}

// ToACL returns an ACL as it is on the wire. Nil stays nil.
func ToACL(acl []tree.ACL) []wire.ACL {
	if acl == nil {
		return nil
	}
	list := make([]wire.ACL, len(acl))
	for i, a := range acl {
		list[i] = wire.ACL{Perms: wire.Perms(a.Perms), Scheme: a.Scheme, ID: a.ID}
	}
	return list
}

// FromACL returns an ACL of the wire. Nil stays nil.
func FromACL(acl []wire.ACL) []tree.ACL {
	if acl == nil {
		return nil
	}
	list := make([]tree.ACL, len(acl))
	for i, a := range acl {
		list[i] = tree.ACL{Perms: tree.Perms(a.Perms), Scheme: a.Scheme, ID: a.ID}
	}
	return list
}

// ToStat returns a Stat as it is on the wire.
func ToStat(s *tree.Stat) wire.Stat {
	return wire.Stat{
		Czxid: int64(s.Czxid), Mzxid: int64(s.Mzxid), Pzxid: int64(s.Pzxid), Ctime: s.Ctime.UnixMilli(), Mtime: s.Mtime.UnixMilli(),
		Version: s.Version, Cversion: s.Cversion, Aversion: s.Aversion,
		EphemeralOwner: int64(s.EphemeralOwner), DataLength: s.DataLength, NumChildren: s.NumChildren,
	}
}

// FromStat returns a Stat of the wire.
func FromStat(s *wire.Stat) tree.Stat {
	return tree.Stat{
		Czxid: tree.Zxid(s.Czxid), Mzxid: tree.Zxid(s.Mzxid), Pzxid: tree.Zxid(s.Pzxid),
		Ctime: time.UnixMilli(s.Ctime).UTC(), Mtime: time.UnixMilli(s.Mtime).UTC(),
		Version: s.Version, Cversion: s.Cversion, Aversion: s.Aversion,
		EphemeralOwner: tree.SessionID(s.EphemeralOwner), DataLength: s.DataLength, NumChildren: s.NumChildren,
	}
}
