package disk

import (
	"path/filepath"
	"testing"
)

// Usage adds up the files below a directory. A directory that is missing uses nothing.
func TestUsage(t *testing.T) {
	d := open(t)
	ok(t, d.MkdirAll(filepath.Join(d.Dir(), "b/c")))
	put(t, d, filepath.Join(d.Dir(), "a"), "123")
	put(t, d, filepath.Join(d.Dir(), "b/c/d"), "12345")
	put(t, d, filepath.Join(d.Dir(), "b/e"), "1")
	for dir, want := range map[string]uint64{"": 9, "b": 6, "b/c": 5, "none": 0} {
		if got, err := d.Usage(filepath.Join(d.Dir(), dir)); err != nil || got != want {
			t.Errorf("%q uses %d bytes, %v; want %d", dir, got, err, want)
		}
	}
}
