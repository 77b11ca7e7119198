package tree

import (
	"reflect"
	"testing"
	"time"
)

// A znode that was told of shows what was told.
func TestDetached(t *testing.T) {
	at := time.UnixMilli(1_700_000_000_123).UTC()
	for _, data := range [][]byte{nil, {}, []byte("x")} {
		for _, stat := range []Stat{
			{Czxid: 1, Mzxid: 2, Pzxid: 1, Ctime: at, Mtime: at, Version: 3, Aversion: 1, EphemeralOwner: 9, DataLength: int32(len(data))},
			{Czxid: 1, Mzxid: 1, Pzxid: 7, Ctime: at, Mtime: at, Cversion: 5, NumChildren: 3, DataLength: int32(len(data))},
			{Ctime: at, Mtime: at, Cversion: -1, NumChildren: 1, DataLength: int32(len(data))}, // the root
		} {
			f := Detached(data, stat)
			if !reflect.DeepEqual(f.Data(), data) || f.Stat() != stat {
				t.Errorf("%#v and %+v became %#v and %+v", data, stat, f.Data(), f.Stat())
			}
		}
	}
}
