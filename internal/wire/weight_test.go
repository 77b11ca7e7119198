package wire

import (
	"testing"
	"unsafe"
)

// A request weighs at least what its lists take.
func TestWeight(t *testing.T) {
	for name, c := range map[string]struct {
		bytes int
		size  uintptr
	}{
		"string":    {textBytes, unsafe.Sizeof("")},
		"ACL":       {aclBytes, unsafe.Sizeof(ACL{})},
		"Operation": {operationBytes, unsafe.Sizeof(Operation{})},
		"NativeOp":  {nativeOpBytes, unsafe.Sizeof(NativeOp{})},
	} {
		if uintptr(c.bytes) < c.size {
			t.Errorf("%s has %d bytes, it counts as %d", name, c.size, c.bytes)
		}
	}
	const n = 1000
	for name, c := range map[string]struct {
		q     Request
		least int
	}{
		"multi":       {Request{Operation: Operation{Op: OpMulti}, Ops: fill(n, Operation{Op: OpCheck, Path: "/a"})}, n * (operationBytes + 2)},
		"ACL":         {Request{Operation: Operation{Op: OpCreate, ACL: fill(n, ACL{Scheme: Null, ID: Null})}}, n * aclBytes},
		"ACL, multi":  {Request{Operation: Operation{Op: OpMulti}, Ops: []Operation{{Op: OpCreate, ACL: fill(n, ACL{})}}}, n * aclBytes},
		"setWatches":  {Request{Operation: Operation{Op: OpSetWatches2}, Watches: Watches{Recursive: fill(n, "")}}, n * textBytes},
		"names":       {Request{Operation: Operation{Op: OpNative}, Native: Native{Kind: NativeBefore, Names: fill(n, "")}}, n * textBytes},
		"native":      {Request{Operation: Operation{Op: OpNative}, Native: Native{Kind: NativeSubmit, Ops: fill(n, NativeOp{})}}, n * nativeOpBytes},
		"native, ACL": {Request{Operation: Operation{Op: OpNative}, Native: Native{Kind: NativeSubmit, Ops: []NativeOp{{ACL: fill(n, ACL{})}}}}, n * aclBytes},
		"reconfig":    {Request{Operation: Operation{Op: OpReconfig}, Reconfig: Reconfig{Members: string(make([]byte, n))}}, n},
	} {
		var got Request
		body, err := got.DecodeHeader(c.q.AppendFrame(nil)[4:])
		if err == nil {
			err = got.DecodeBody(body)
		}
		if err != nil || got.Weight() < c.least {
			t.Errorf("%s: weighs %d, want %d or more; %v", name, got.Weight(), c.least, err)
		}
	}
}

func fill[T any](n int, one T) []T {
	list := make([]T, n)
	for i := range list {
		list[i] = one
	}
	return list
}
