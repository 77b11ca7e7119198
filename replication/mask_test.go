package replication

import (
	"bytes"
	"testing"
)

func TestMask(t *testing.T) {
	for size := range 40 {
		cmd := bytes.Repeat([]byte{7}, size)
		logged := mask(cmd)
		if got := appendUnmasked([]byte("x"), logged); string(got) != "x"+string(cmd) {
			t.Errorf("%x of %x", got, logged)
		}
		if size >= 8 && bytes.Contains(logged, cmd[:8]) {
			t.Errorf("%x is not masked", logged)
		}
	}
	for _, plain := range []string{"", "\x91\x04", "\xc1"} { // no command of this build
		if got := appendUnmasked(nil, []byte(plain)); string(got) != plain {
			t.Errorf("%x of %x", got, plain)
		}
	}
}
