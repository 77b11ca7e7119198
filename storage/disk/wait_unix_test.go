//go:build unix

package disk

import (
	"io"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// C1.2: The process really has no descriptor left.
func TestRealLackOfDescriptors(t *testing.T) {
	d := open(t)
	name := filepath.Join(d.Dir(), "f")
	put(t, d, name, "x")
	var limit syscall.Rlimit
	ok(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	restore := func() { ok(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit)) }
	defer restore()
	none := limit
	none.Cur = 3 // open descriptors stay open
	ok(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &none))
	_, err := d.OpenForRead(name)
	wantErr(t, err, syscall.EMFILE)
	d.Patience(time.Minute)
	d.OnWait(func(lacking error) {
		if lacking != nil {
			restore()
		}
	})
	f := must[File](t)(d.OpenForRead(name))
	if text := must[[]byte](t)(io.ReadAll(f)); string(text) != "x" {
		t.Errorf("read %q", text)
	}
	ok(t, f.Close())
	ok(t, d.Err())
}
