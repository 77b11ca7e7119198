package audit

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// FuzzSearch reads any file as one of an audit. What it shows is what somebody could have written, and
// a damaged file hides none of the others.
func FuzzSearch(f *testing.F) {
	first, last := encode(set(1)), encode(set(3))
	f.Add(bytes.Join([][]byte{first, encode(set(2)), last}, nil))
	f.Add(first[:len(first)-3])
	f.Add([]byte("{}\n[]\nnull\n\"\"\n" + `{"op":"set","time":"0000-01-01T00:00:00Z","zxid":9223372036854775807}`))
	f.Add([]byte(`{"op":"gap","lost":18446744073709551615,"acl":[{"perms":-1}],"mode":"ephemeral"}` + "\n"))
	dir := f.TempDir()
	if err := os.WriteFile(filepath.Join(dir, nameOf(3)), last, 0o600); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		must(t, os.WriteFile(filepath.Join(dir, nameOf(2)), file, 0o600))
		seen := false
		for r, err := range Search(dir, Query{}) {
			if err != nil {
				continue
			}
			seen = seen || r.Zxid == 3
			if again, ok := decode(bytes.TrimSuffix(encode(r), []byte("\n"))); r.Op != gapOp && (!ok || again.Zxid != r.Zxid || again.Path != r.Path) {
				t.Errorf("%+v is after writing %+v", r, again)
			}
		}
		if !seen {
			t.Error("the next file is not shown")
		}
	})
}
