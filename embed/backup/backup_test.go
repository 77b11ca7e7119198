package backup_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/backup"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/internal/testkit"
)

var must = testkit.Must

// several starts an ensemble with several shards, and returns a superuser's session.
func several(t *testing.T, shards int) (*embedtest.Ensemble, *embed.Session) {
	t.Helper()
	ens := embedtest.New(t, 1, embedtest.Options{Config: func(c *embed.Config) {
		c.Shards, c.SuperDigest = shards, embed.Digest("super:pw")
	}})
	return ens, ens.Session(1, embed.SessionOptions{Auth: []embed.Auth{{Scheme: "digest", Credential: []byte("super:pw")}}})
}

// sample creates znodes of every kind.
func sample(t *testing.T, s *embed.Session) {
	t.Helper()
	create := func(path string, data []byte, o embed.CreateOptions) {
		_, _, err := s.CreateWith(t.Context(), path, data, o)
		must(t, err)
	}
	for _, top := range []string{"/jobs", "/orders", "/stock", "/users"} {
		create(top, []byte("text \"quoted\" <é>\n"), embed.CreateOptions{})
		create(top+"/bytes", []byte{0, 0xff, 'a'}, embed.CreateOptions{})
		create(top+"/empty", []byte{}, embed.CreateOptions{})
		create(top+"/nil", nil, embed.CreateOptions{})
		create(top+"-x", nil, embed.CreateOptions{ACL: []embed.ACL{{Perms: embed.PermRead, Scheme: "digest", ID: "u:hash"}, {Perms: embed.PermAll, Scheme: "ip", ID: "10.0.0.0/8"}}})
		create(top+"-x/child", nil, embed.CreateOptions{Mode: embed.Container})
		create(top+"/ttl", nil, embed.CreateOptions{Mode: embed.TTL, TTL: time.Hour})
		create(top+"/e", nil, embed.CreateOptions{Mode: embed.Ephemeral})
		for i := range 150 {
			create(top+"/s-", fmt.Append(nil, i), embed.CreateOptions{Mode: embed.Sequential})
		}
	}
}

func take(t *testing.T, ens *embedtest.Ensemble) []byte {
	t.Helper()
	var file bytes.Buffer
	info, err := ens.Node(1).Backup(t.Context(), &file)
	must(t, err)
	if got, err := backup.Verify(bytes.NewReader(file.Bytes())); err != nil || fmt.Sprint(got) != fmt.Sprint(info) {
		t.Fatalf("%v, %+v, want %+v", err, got, info)
	}
	return file.Bytes()
}

// znodes returns what a backup has, without what an import does not bring back.
func znodes(t *testing.T, file []byte) map[string]string {
	t.Helper()
	r, err := backup.NewReader(bytes.NewReader(file))
	must(t, err)
	all := make(map[string]string)
	for z, err := range r.Znodes() {
		must(t, err)
		if _, twice := all[z.Path]; twice {
			t.Errorf("%s comes twice", z.Path)
		}
		if z.Mode != embed.Ephemeral && !strings.HasPrefix(z.Path, "/zookeeper") {
			all[z.Path] = fmt.Sprintf("%q %v %v %v %v", z.Data, z.Data == nil, z.ACL, z.Mode, z.TTL)
		}
	}
	return all
}

// What was backed up, and written as lines, comes back in an ensemble with any other number of
// shards (zk_shell#117: nothing read what an export had written). Ephemerals do not come back
// (exhibitor#304).
func TestRoundTrip(t *testing.T) {
	for _, shards := range [][2]int{{1, 4}, {4, 1}} {
		synctest.Test(t, func(t *testing.T) {
			from, s := several(t, shards[0])
			sample(t, s)
			file := take(t, from)
			var text bytes.Buffer
			r, err := backup.NewReader(bytes.NewReader(file))
			must(t, err)
			n, err := backup.WriteLines(&text, r.Znodes())
			must(t, err)
			if lines := bytes.Count(text.Bytes(), []byte("\n")); n+1 != lines || n < 4*150 {
				t.Errorf("%d znodes in %d lines", n, lines)
			}
			to, s := several(t, shards[1])
			report, err := backup.Import(t.Context(), backup.Session(s), backup.Lines(&text), backup.Options{})
			must(t, err)
			if report.Created != 4*157 || report.Ephemerals != 4 || report.Reserved < 3 {
				t.Errorf("%+v", report)
			}
			got, want := znodes(t, take(t, to)), znodes(t, file)
			if !maps.Equal(got, want) {
				for path := range want {
					if got[path] != want[path] {
						t.Errorf("%s: %s, want %s", path, got[path], want[path])
					}
				}
				t.Errorf("%d znodes, want %d", len(got), len(want))
			}
		})
	}
}

// A part of a tree comes back below another root (etcd#13328: only a whole did), and what exists
// there is treated as was asked for.
func TestImport_Existing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ens, s := several(t, 1)
		sample(t, s)
		file := take(t, ens)
		_, err := s.Put(t.Context(), "/restored/orders/bytes", []byte("mine"))
		must(t, err)
		below := ens.Session(1, embed.SessionOptions{Root: "/restored", Auth: []embed.Auth{{Scheme: "digest", Credential: []byte("super:pw")}}})
		bring := func(o backup.Options) (backup.Report, error) {
			r, err := backup.NewReader(bytes.NewReader(file))
			must(t, err)
			o.Path = "/orders"
			return backup.Import(t.Context(), backup.Session(below), r.Znodes(), o)
		}
		if report, err := bring(backup.Options{}); !errors.Is(err, embed.ErrNodeExists) || report.Created != 0 || !strings.Contains(err.Error(), "/orders") {
			t.Errorf("%v, %v", report, err)
		}
		if report, err := bring(backup.Options{Existing: backup.Skip}); err != nil || report != (backup.Report{Created: 153, Existed: 2, Ephemerals: 1}) {
			t.Errorf("%+v, %v", report, err)
		}
		if data, _, err := s.Get(t.Context(), "/restored/orders/bytes"); string(data) != "mine" || err != nil {
			t.Errorf("%q, %v", data, err)
		}
		if report, err := bring(backup.Options{Existing: backup.Overwrite}); err != nil || report != (backup.Report{Overwritten: 2, Existed: 153, Ephemerals: 1}) {
			t.Errorf("%+v, %v", report, err)
		}
		if data, _, err := s.Get(t.Context(), "/restored/orders/bytes"); !bytes.Equal(data, []byte{0, 0xff, 'a'}) || err != nil {
			t.Errorf("%q, %v", data, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for _, c := range []struct {
			ctx   context.Context
			lines string
			want  error
		}{
			{ctx, `{"path":"/new"}`, context.Canceled},
			{t.Context(), `{"path":"/none/below"}`, embed.ErrNoNode},
			{t.Context(), `{"path":"/acl","acl":[{"perms":31,"scheme":"none","id":"x"}]}`, embed.ErrInvalidACL},
			{t.Context(), `{"path":"/new"} {}`, backup.ErrLine},
		} {
			if report, err := backup.Import(c.ctx, backup.Session(s), backup.Lines(strings.NewReader(c.lines)), backup.Options{}); !errors.Is(err, c.want) || report.Created != 0 {
				t.Errorf("%s: %v, %v", c.lines, report, err)
			}
		}
	})
}

// An import that ended goes on from where it was (etcd-backup-restore#58).
func TestImport_GoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ens, s := several(t, 4)
		sample(t, s)
		file := take(t, ens)
		broken := errors.New("broken")
		for after := range 10 {
			to, s := several(t, 1)
			r, err := backup.NewReader(bytes.NewReader(file))
			must(t, err)
			if _, err := backup.Import(t.Context(), backup.Session(s), breaking(r.Znodes(), after*60, broken), backup.Options{}); !errors.Is(err, broken) {
				t.Fatal(err)
			}
			r, err = backup.NewReader(bytes.NewReader(file))
			must(t, err)
			report, err := backup.Import(t.Context(), backup.Session(s), r.Znodes(), backup.Options{Existing: backup.Skip})
			must(t, err)
			if report.Created+report.Existed != 4*157 || !maps.Equal(znodes(t, take(t, to)), znodes(t, file)) {
				t.Errorf("after %d znodes: %+v", after, report)
			}
		}
	})
}

func breaking(znodes iter.Seq2[backup.Znode, error], after int, err error) iter.Seq2[backup.Znode, error] {
	return func(yield func(backup.Znode, error) bool) {
		for z := range znodes {
			if after--; after < 0 {
				yield(backup.Znode{}, err)
				return
			}
			if !yield(z, nil) {
				return
			}
		}
	}
}

// Lines that WriteLines would not write are refused, with the number of the line.
func TestLines(t *testing.T) {
	for text, want := range map[string]string{
		"":                                            "",
		"\n \n{\"path\":\"/a\"}\n":                    "",
		`{"path":"/a"`:                                "line 1: ",
		"\n[]":                                        "line 2: ",
		`{"path":"a"}`:                                "slash",
		`{"path":"/a","version":1}`:                   "unknown field",
		`{"path":"/a","mode":"sequential"}`:           "mode",
		`{"path":"/a","mode":"ttl"}`:                  "ttl of 0",
		`{"path":"/a","ttl":5}`:                       "ttl of 5",
		`{"path":"/a","ttl":-5,"mode":"ttl"}`:         "ttl of -5",
		`{"path":"/a","text":"x","data":"eA=="}`:      "both",
		`{"path":"/a","data":"no base64"}`:            "base64",
		`{"path":"/a","text":"` + "\xff" + `"}x`:      "more follows",
		`{"path":"/a","mode":"ttl","ttl":5}`:          "",
		`{"path":"/a","mode":"ephemeral","owner":77}`: "",
		`{"end":0}`:                                   "",
		"{\"path\":\"/a\"}\n{\"end\":1}\n\n":          "",
		"{\"path\":\"/a\"}\n{\"end\":2}":              "line 2: ",
		"{\"path\":\"/a\"}\n{\"end\":0}":              "of 0 znodes, and 1 came",
		"{\"end\":0}\n{\"path\":\"/a\"}":              "line 2: ",
		"{\"end\":0}\n{\"end\":0}":                    "after the end",
		`{"path":"/a","end":1}`:                       "a znode and an end",
		`{"end":-1}`:                                  "of -1 znodes",
		`{"end":"1"}`:                                 "line 1: ",
	} {
		var got error
		for _, err := range backup.Lines(strings.NewReader(text)) {
			got = err
		}
		if has := strings.Contains(text, `{"end"`); want == "" && has == errors.Is(got, backup.ErrNoEnd) {
			t.Errorf("%s: %v, and it has an end: %v", text, got, has)
		}
		if errors.Is(got, backup.ErrNoEnd) {
			got = nil
		}
		if want == "" && got != nil || want != "" && (!errors.Is(got, backup.ErrLine) || !strings.Contains(got.Error(), want)) {
			t.Errorf("%s: %v, want %q", text, got, want)
		}
	}
	broken := errors.New("broken")
	for _, err := range backup.Lines(iotest.ErrReader(broken)) {
		if err != broken {
			t.Error(err)
		}
	}
}

// A backup that is cut yields what is sound, and then says that it is not whole.
func TestReader_OfACutFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ens, s := several(t, 1)
		sample(t, s)
		file := take(t, ens)
		whole := len(znodes(t, file))
		for _, n := range []int{0, 7, 8, 100, len(file) / 2, len(file) - 1} {
			if _, err := backup.Verify(bytes.NewReader(file[:n])); !errors.Is(err, backup.ErrCorrupt) {
				t.Errorf("%d bytes: %v", n, err)
			}
		}
		r, err := backup.NewReader(bytes.NewReader(file[:len(file)-1]))
		must(t, err)
		var paths []string
		for z, err := range r.Znodes() {
			if err != nil {
				if !errors.Is(err, backup.ErrCorrupt) {
					t.Error(err)
				}
				break
			}
			paths = append(paths, z.Path)
		}
		if len(paths) < whole || !slices.IsSorted(paths) {
			t.Errorf("%d znodes of %d", len(paths), whole)
		}
	})
}

// What is written of a backup that stops in the middle looks like a shorter tree: its lines are
// good, and only their end is missing.
func TestLines_OfACutBackup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ens, s := several(t, 2)
		sample(t, s)
		file := take(t, ens)
		for _, n := range []int{len(file) / 2, len(file) - 1, len(file)} {
			r, err := backup.NewReader(bytes.NewReader(file[:n]))
			must(t, err)
			var text bytes.Buffer
			written, err := backup.WriteLines(&text, r.Znodes())
			if whole := n == len(file); whole != (err == nil) || written == 0 {
				t.Errorf("%d bytes: %d znodes, %v", n, written, err)
			}
			whole := slices.Collect(strings.Lines(text.String()))
			for cut := range whole {
				var got error
				for _, err := range backup.Lines(strings.NewReader(strings.Join(whole[:cut], ""))) {
					got = err
				}
				if !errors.Is(got, backup.ErrNoEnd) {
					t.Fatalf("%d lines of %d: %v", cut, len(whole), got)
				}
			}
		}
	})
}
