package embed_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/build"
	"go/importer"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// circles has, for each package whose files depend on each other in a circle, how many files are in
// circles. Take the number down when it has become smaller, and the line out at zero; never add one.
var circles = map[string]int{
	"cmd/vivarium":                        14,
	"cmd/vivarium/internal/client":        3,
	"cmd/vivarium/internal/shell":         9,
	"cmd/vivarium/internal/transfer":      5,
	"cmd/vivarium/internal/zkdir":         3,
	"embed":                               15,
	"embed/admin":                         16,
	"embed/backup":                        6,
	"embed/client":                        6,
	"embed/discovery":                     3,
	"embed/election":                      4,
	"embed/embedtest":                     3,
	"embed/gateway":                       24,
	"embed/group":                         2,
	"embed/job":                           5,
	"embed/lock":                          5,
	"embed/partition":                     4,
	"embed/task":                          5,
	"embed/view":                          5,
	"engine/ask":                          2,
	"engine/claim":                        2,
	"engine/clock":                        2,
	"engine/command":                      2,
	"engine/keeper":                       11,
	"engine/offline":                      2,
	"engine/outbox":                       6,
	"engine/replica":                      17,
	"internal/files":                      2,
	"internal/files/memory":               3,
	"internal/testkit":                    2,
	"internal/wire":                       2,
	"replication":                         17,
	"replication/transport":               17,
	"replication/transport/transporttest": 2,
	"session":                             9,
	"storage":                             7,
	"storage/disk":                        13,
	"tree":                                18,
	"watch":                               9,
}

// Files of a package are like rooms of a house: whoever reads one should not have to read all the
// others first. A file depends on another one if it uses a name, a method or a field that is declared
// there.
func TestFilesFormNoCircle(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the table has the files that are built on Linux")
	}
	_, list := sources(t)
	files := make(map[string][]source)
	for _, s := range list {
		if !s.test() {
			files[s.dir] = append(files[s.dir], s)
		}
	}
	load := compiled(t)
	for _, dir := range slices.Sorted(maps.Keys(files)) {
		found := inCircles(dependencies(load, dir, files[dir]))
		if n := len(found); n != circles[dir] {
			t.Errorf("%s: %d of %d files are in circles, and the table in embed/circles_test.go says %d: %v",
				dir, n, len(files[dir]), circles[dir], found)
		}
	}
	for dir := range circles {
		if files[dir] == nil {
			t.Errorf("embed/circles_test.go: take out the line of %s, which is gone", dir)
		}
	}
}

// compiled returns an importer of what go list has compiled.
func compiled(t *testing.T) types.Importer {
	t.Helper()
	cmd := exec.Command("go", "list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}", "./...")
	cmd.Dir = ".."
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	at := make(map[string]string)
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		at[path] = file
	}
	return importer.ForCompiler(fileSet, "gc", func(path string) (io.ReadCloser, error) {
		if at[path] == "" {
			return nil, fmt.Errorf("no export data of %s", path)
		}
		return os.Open(at[path])
	})
}

// dependencies returns for each file of a package on which others it depends.
func dependencies(load types.Importer, dir string, list []source) map[string]map[string]bool {
	var parts []*ast.File
	of := make(map[string]map[string]bool)
	for _, s := range list {
		if fits, err := build.Default.MatchFile(filepath.Join("..", s.dir), s.name); err == nil && fits {
			parts = append(parts, s.file)
		}
	}
	info := &types.Info{Uses: make(map[*ast.Ident]types.Object)}
	conf := types.Config{Importer: load, FakeImportC: true, Error: func(error) {}}
	pkg, _ := conf.Check(module+dir, fileSet, parts, info)
	name := func(p ast.Node) string { return fileSet.Position(p.Pos()).Filename }
	for id, object := range info.Uses {
		if object.Pkg() != pkg || !object.Pos().IsValid() {
			continue
		}
		from, to := name(id), fileSet.Position(object.Pos()).Filename
		if from != to {
			if of[from] == nil {
				of[from] = make(map[string]bool)
			}
			of[from][to] = true
		}
	}
	return of
}

// inCircles returns the files that depend on themselves through others.
func inCircles(of map[string]map[string]bool) (list []string) {
	for from := range of {
		seen := make(map[string]bool)
		next := slices.Collect(maps.Keys(of[from]))
		for len(next) > 0 {
			file := next[len(next)-1]
			next = next[:len(next)-1]
			if !seen[file] {
				seen[file] = true
				next = slices.AppendSeq(next, maps.Keys(of[file]))
			}
		}
		if seen[from] {
			list = append(list, from[strings.LastIndexByte(from, '/')+1:])
		}
	}
	slices.Sort(list)
	return list
}
