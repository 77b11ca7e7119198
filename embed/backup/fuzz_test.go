package backup_test

import (
	"bytes"
	"encoding/hex"
	"iter"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/vivarium-go/vivarium/embed/backup"
)

// until returns what a sequence yields before its end, or before an error.
func until(list iter.Seq2[backup.Znode, error]) (znodes []backup.Znode, err error) {
	for z, err := range list {
		if err != nil {
			return znodes, err
		}
		znodes = append(znodes, z)
	}
	return znodes, nil
}

// FuzzLines reads any text as an export. What it accepts is the same after it is written and read
// again.
func FuzzLines(f *testing.F) {
	f.Add([]byte(`{"path":"/a","text":"x","mode":"ttl","ttl":1000,"acl":[{"perms":31,"scheme":"world","id":"anyone"}]}` + "\n\n" + `{"path":"/a/b","data":"AP8="}`))
	f.Add([]byte(`{"path":"/e","mode":"ephemeral","owner":7,"shard":3,"stat":{"czxid":1,"mzxid":2,"pzxid":3,"ctime":"2026-01-01T00:00:00.5Z","version":-1}}`))
	f.Add([]byte(`{"path":"/a","ttl":-9223372036854775808} {}`))
	f.Add([]byte("null\n[]\n\"\"\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		first, _ := until(backup.Lines(bytes.NewReader(text)))
		var written bytes.Buffer
		if _, err := backup.WriteLines(&written, func(yield func(backup.Znode, error) bool) {
			for _, z := range first {
				if !yield(z, nil) {
					return
				}
			}
		}); err != nil {
			return // its times are beyond what JSON has
		}
		second, err := until(backup.Lines(&written))
		if err != nil || !reflect.DeepEqual(first, second) {
			t.Errorf("%+v\nis after writing, with error %v\n%+v", first, err, second)
		}
	})
}

// FuzzBackup reads any file as a backup. Verify and the reader agree whether it is whole.
func FuzzBackup(f *testing.F) {
	dump, err := os.ReadFile("../../engine/backupfile/testdata/sample.hex")
	must(f, err)
	var sample []byte
	for line := range strings.Lines(string(dump)) {
		_, digits, _ := strings.Cut(line, " ")
		digits, _, _ = strings.Cut(digits, "|")
		part, err := hex.DecodeString(strings.ReplaceAll(digits, " ", ""))
		must(f, err)
		sample = append(sample, part...)
	}
	if _, err := backup.Verify(bytes.NewReader(sample)); err != nil {
		f.Fatal(err)
	}
	f.Add(sample)
	f.Fuzz(func(t *testing.T, file []byte) {
		_, verified := backup.Verify(bytes.NewReader(file))
		r, err := backup.NewReader(bytes.NewReader(file))
		if err == nil {
			_, err = until(r.Znodes())
		}
		if (err == nil) != (verified == nil) {
			t.Errorf("Verify says %v, the reader %v", verified, err)
		}
	})
}
