package storage

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestLayoutFilesArePinned(t *testing.T) {
	if got, want := string(encodeMarker(1)), "vivarium image\nformat 1\nsum 2ee7ec42\n"; got != want {
		t.Errorf("the marker is %q", got)
	}
	p := pointer{image: "image-000007", state: stateLive, synced: 1 << 40}
	want := "vivarium current\nimage image-000007\nstate live\nsynced 1099511627776\nsum 925670f6\n"
	if got := string(p.encode()); got != want {
		t.Errorf("the pointer is %q", got)
	}
}

func TestLayoutPointerReadsBackWhatWasWritten(t *testing.T) {
	for _, p := range []pointer{
		{image: "image-000001", state: stateNew},
		{image: "image-1000000", state: stateLive, synced: 1<<64 - 1},
	} {
		body, ok := unseal(p.encode())
		got, parsed := decodePointer(body)
		if !ok || !parsed || got != p {
			t.Errorf("%+v came back as %+v", p, got)
		}
	}
}

func TestLayoutRefusesEveryFlippedByteOfTheSmallFiles(t *testing.T) {
	for _, data := range [][]byte{encodeMarker(1), pointer{image: "image-000001", state: stateLive}.encode()} {
		for at := range data {
			bad := append([]byte(nil), data...)
			bad[at] ^= 1
			if _, ok := unseal(bad); ok {
				t.Errorf("%q was accepted", bad)
			}
		}
	}
}

// Each case is a directory that a user might have.
func TestOpenJudgesTheDirectory(t *testing.T) {
	marker := string(encodeMarker(1))
	live := string(pointer{image: "image-000002", state: stateLive}.encode())
	fresh := string(pointer{image: "image-000001", state: stateNew}.encode())
	for name, c := range map[string]struct {
		files map[string]string // a name that ends in / is a directory
		want  error             // nil: a new image
		says  string
	}{
		"nothing":                       {files: nil},
		"empty":                         {files: map[string]string{"/": ""}},
		"marker cut off":                {files: map[string]string{"format.tmp": "viv"}},
		"marker only":                   {files: map[string]string{"format": marker}},
		"marker with more in it":        {files: map[string]string{"format": string(seal(markerTitle + "\nformat 1 b\n"))}, want: ErrCorrupt, says: "format"},
		"pointer with more in it":       {files: map[string]string{"format": marker, "current": string(seal(pointerTitle + "\nimage image-000001\nstate new\nsynced 0\nlost 1\n"))}, want: ErrCorrupt, says: "current"},
		"pointer cut off":               {files: map[string]string{"format": marker, "current.tmp": "viv"}},
		"creation cut off":              {files: map[string]string{"format": marker, "current": fresh}},
		"creation cut off in the image": {files: map[string]string{"format": marker, "current": fresh, "image-000001/MANIFEST-000001": "x"}},
		"somebody else's file":          {files: map[string]string{"PG_VERSION": "15"}, want: ErrForeign, says: "PG_VERSION"},
		"a Pebble of somebody else":     {files: map[string]string{"CURRENT": "MANIFEST-000001\n", "MANIFEST-000001": ""}, want: ErrForeign, says: "CURRENT"},
		"marker of somebody else":       {files: map[string]string{"format": "cloth\n"}, want: ErrCorrupt, says: "format"},
		"marker empty":                  {files: map[string]string{"format": ""}, want: ErrCorrupt, says: "format"},
		"marker gone":                   {files: map[string]string{"current": live, "image-000002/": ""}, want: ErrCorrupt, says: "format"},
		"newer format":                  {files: map[string]string{"format": string(encodeMarker(2)), "current": "unheard of"}, want: ErrNewer, says: "format 2"},
		"pointer gone":                  {files: map[string]string{"format": marker, "image-000002/": ""}, want: ErrCorrupt, says: "current"},
		"pointer empty":                 {files: map[string]string{"format": marker, "current": "", "image-000002/": ""}, want: ErrCorrupt, says: "current"},
		"image gone":                    {files: map[string]string{"format": marker, "current": live}, want: ErrCorrupt, says: "image-000002"},
		"image empty":                   {files: map[string]string{"format": marker, "current": live, "image-000002/": ""}, want: ErrCorrupt, says: "image-000002"},
		"pointer to elsewhere":          {files: map[string]string{"format": marker, "current": string(pointer{image: "../../raft", state: stateLive}.encode())}, want: ErrCorrupt, says: "current"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			for file, data := range c.files {
				path := filepath.Join(n.dir(), file)
				if strings.HasSuffix(file, "/") {
					must(t, os.MkdirAll(path, 0o755))
					continue
				}
				must(t, os.MkdirAll(filepath.Dir(path), 0o755))
				must(t, os.WriteFile(path, []byte(data), 0o644))
			}
			before := filesIn(t, n.root)
			_, exists, err := Peek(n.options())
			if !errors.Is(err, c.want) || exists {
				t.Fatalf("Peek: %v, %v", exists, err)
			}
			i, err := Open(n.options())
			if !errors.Is(err, c.want) {
				t.Fatalf("Open: %v", err)
			}
			if after := filesIn(t, n.root); !sameFiles(before, after) {
				t.Fatal("the directory was changed")
			}
			if c.want != nil {
				if !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), n.dir()) || !strings.Contains(err.Error(), "; ") {
					t.Fatalf("the error does not say enough: %v", err)
				}
				return
			}
			defer i.Close()
			h := newHistory(t)
			h.expect(t, i)
			must(t, h.commit(i, 3))
			must(t, i.Close())
			i = n.open(t)
			if h.expect(t, i); i.Applied() != 3 {
				t.Fatalf("index %d", i.Applied())
			}
		})
	}
}

func sameFiles(a, b map[string]string) bool { return contents(a).equal(b) }
