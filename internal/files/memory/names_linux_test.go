package memory

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vivarium-go/vivarium/internal/files"
	"github.com/vivarium-go/vivarium/internal/testkit"
)

// Every call with every kind of name gets the same answer from the operating system, down to the
// text of the error, and leaves the same names behind.
func TestNames_LikeOperatingSystem(t *testing.T) {
	t.Parallel()
	names := []string{"", "\x00", "fi\x00le", "file", "file/", "file//", "file/.", "file/..", "file/x", "file/x/", "./file", "dir/../file",
		"missing/../file", "file/../dir", "dir", "dir/", "dir//", "dir/.", "dir/./", "dir/..", "dir/../", "dir//in", "dir/in", "dir/in/", "dir/in/..",
		"empty", "empty/", "empty/.", "empty/..", "empty/../empty", "missing", "missing/", "missing//", "missing/.", "missing/..", "missing/x",
		"dir/missing", "dir/missing/", "dir/missing/.", "...", "dir/...", " ", strings.Repeat("l", 255), strings.Repeat("l", 256),
		strings.Repeat("l", 256) + "/x", "file/" + strings.Repeat("l", 256), strings.Repeat("dir/../", 600), strings.Repeat("/", 5000) + "file"}
	open := func(flag int) func(s files.System, dir, name string) (any, error) {
		return func(s files.System, dir, name string) (any, error) {
			f, err := s.OpenFile(name, flag, 0o666)
			if err != nil {
				return nil, err
			}
			return nil, f.Close()
		}
	}
	calls := map[string]func(s files.System, dir, name string) (any, error){
		"open":           open(os.O_RDONLY),
		"open to write":  open(os.O_WRONLY),
		"create":         open(os.O_RDWR | os.O_CREATE),
		"create to read": open(os.O_RDONLY | os.O_CREATE),
		"create new":     open(os.O_RDWR | os.O_CREATE | os.O_EXCL),
		"open emptied":   open(os.O_RDWR | os.O_TRUNC),
		"create emptied": open(os.O_RDWR | os.O_CREATE | os.O_TRUNC),
		"mkdir":          func(s files.System, _, name string) (any, error) { return nil, s.Mkdir(name, 0o777) },
		"remove":         func(s files.System, _, name string) (any, error) { return nil, s.Remove(name) },
		"stat":           func(s files.System, _, name string) (any, error) { return described(s.Stat(name)) },
		"lstat":          func(s files.System, _, name string) (any, error) { return described(s.Lstat(name)) },
		"resolve": func(s files.System, _, name string) (any, error) {
			if name == "" {
				return nil, nil // the working directory, which memory does not have
			}
			resolved, err := s.Resolve(name)
			return fmt.Sprint(resolved, err == nil), nil
		},
	}
	for _, other := range []string{"file", "file/", "dir", "empty/.", "new", "new/", "missing/new"} {
		calls["rename to "+other] = func(s files.System, dir, name string) (any, error) { return nil, s.Rename(name, dir+"/"+other) }
		calls["rename from "+other] = func(s files.System, dir, name string) (any, error) { return nil, s.Rename(dir+"/"+other, name) }
		calls["link to "+other] = func(s files.System, dir, name string) (any, error) { return nil, s.Link(name, dir+"/"+other) }
		calls["link from "+other] = func(s files.System, dir, name string) (any, error) { return nil, s.Link(dir+"/"+other, name) }
	}
	root, n := t.TempDir(), 0
	memory := New()
	must(t, mkdirAll(memory, root))
	for i, what := range slices.Sorted(maps.Keys(calls)) {
		call := calls[what]
		for j, name := range names {
			if (i+j)%4 != 0 && !testkit.Night() {
				continue // the real system takes its time
			}
			dir := fmt.Sprintf("%s/%d", root, n)
			n++
			path := name
			if name != "" {
				path = dir + "/" + name
			}
			answer := func(s files.System) string {
				must(t, s.Mkdir(dir, 0o777))
				for _, d := range []string{"/dir", "/empty"} {
					must(t, s.Mkdir(dir+d, 0o777))
				}
				for _, f := range []string{"/file", "/dir/in"} {
					file, err := s.OpenFile(dir+f, os.O_RDWR|os.O_CREATE, 0o666)
					must(t, err)
					must(t, file.Close())
				}
				result, err := call(s, dir, path)
				return fmt.Sprintf("%v, %v, leaves %q", result, err, below(t, s, dir))
			}
			if theirs, ours := answer(files.OS), answer(memory); ours != theirs {
				t.Errorf("%s %.40q: %s\nthe operating system: %s", what, name, ours, theirs)
			}
		}
	}
}

// below lists the names below a directory. Those of directories end in a slash.
func below(t *testing.T, s files.System, dir string) (all []string) {
	t.Helper()
	f, err := s.OpenFile(dir, os.O_RDONLY, 0)
	must(t, err)
	defer f.Close()
	names, err := f.Readdirnames(0)
	must(t, err)
	for _, name := range names {
		info, err := s.Lstat(filepath.Join(dir, name))
		must(t, err)
		if !info.IsDir() {
			all = append(all, name)
			continue
		}
		all = append(all, name+"/")
		for _, in := range below(t, s, filepath.Join(dir, name)) {
			all = append(all, name+"/"+in)
		}
	}
	slices.Sort(all)
	return all
}
