package docs

import (
	"errors"
	"go/ast"
	"go/format"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
)

const module = "github.com/vivarium-go/vivarium/"

// public are the packages for users. A page may leave them out of a name: Session.Get, Config.TLS.
var public = []string{"embed", "embed/admin", "embed/audit", "embed/backup", "embed/barrier", "embed/claim", "embed/client", "embed/discovery", "embed/election", "embed/embedtest", "embed/gateway", "embed/group", "embed/job", "embed/lock", "embed/metrics", "embed/partition", "embed/task", "embed/value", "embed/view"}

// rooms are packages below them, whose names a page gives in full: session.Table.
var rooms = []string{"tree", "session", "watch", "storage", "replication", "engine", "engine/keeper", "engine/outbox", "engine/replica", "engine/command", "engine/clock"}

// exports maps the packages that pages may import to their compiled types.
var exports = sync.OnceValues(func() (map[string]string, error) {
	args := []string{"list", "-export", "-deps", "-f", "{{if .Export}}{{.ImportPath}}={{.Export}}{{end}}", "expvar", "net/http", "os/signal", "testing/synctest"}
	for _, p := range public {
		args = append(args, module+p)
	}
	out, err := exec.Command("go", args...).Output()
	files := make(map[string]string)
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), "=")
		files[path] = file
	}
	return files, err
})

// compilerTypes returns an importer of what the go command has compiled.
func compilerTypes(t *testing.T, fset *token.FileSet) types.Importer {
	t.Helper()
	if testing.Short() {
		t.Skip("it runs the go command")
	}
	files, err := exports()
	if err != nil {
		t.Fatal(err)
	}
	return importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) {
		if files[path] == "" {
			return nil, errors.New("no test knows the package " + path + ": add it to public or to exports in docs/go_test.go")
		}
		return os.Open(files[path])
	})
}

// fragmentHead is in front of a block that is no whole file. It imports what a fragment may use,
// and declares what a reader of the page takes for granted.
const fragmentHead = `package p

import (
	"context"
	"errors"
	"expvar"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"path"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/admin"
	"github.com/vivarium-go/vivarium/embed/backup"
	"github.com/vivarium-go/vivarium/embed/claim"
	"github.com/vivarium-go/vivarium/embed/client"
	"github.com/vivarium-go/vivarium/embed/discovery"
	"github.com/vivarium-go/vivarium/embed/audit"
	"github.com/vivarium-go/vivarium/embed/election"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/gateway"
	"github.com/vivarium-go/vivarium/embed/group"
	"github.com/vivarium-go/vivarium/embed/job"
	"github.com/vivarium-go/vivarium/embed/lock"
	"github.com/vivarium-go/vivarium/embed/metrics"
	"github.com/vivarium-go/vivarium/embed/partition"
	"github.com/vivarium-go/vivarium/embed/task"
	"github.com/vivarium-go/vivarium/embed/value"
	"github.com/vivarium-go/vivarium/embed/view"
)

var (
	ctx        context.Context
	id         embed.MemberID
	cfg        embed.Config
	node       *embed.Node
	gw         *gateway.Gateway
	session    *embed.Session
	mutex      *lock.Mutex
	hold       *lock.Hold
	leadership *election.Leadership
	data       []byte
	stat       embed.Stat
	err        error
)

type Flags struct{ Beta bool }
type Service struct{ Address string }

func writeReport(ctx context.Context, t lock.Token) error
func schedule(ctx context.Context, t lock.Token) error
func send(ctx context.Context, mail []byte) error
func migrate(ctx context.Context, t lock.Token) ([]byte, error)

`

// Every Go block is formatted and compiles: as a file if it begins with a package clause, else as
// declarations or as the body of a function. What a fragment declares and does not use is its
// reader's.
func TestGoCompiles(t *testing.T) {
	t.Parallel()
	fset := token.NewFileSet()
	imp := compilerTypes(t, fset)
	for _, p := range pages(t) {
		for _, b := range p.blocks {
			if b.language != "go" {
				continue
			}
			if formatted, err := format.Source([]byte(b.text)); err != nil || string(formatted) != b.text {
				t.Errorf("%s: the block is not formatted; gofmt would write, with the error %v,\n%s", b.at, err, formatted)
			}
			file, whole, err := parse(fset, b)
			if err != nil {
				t.Errorf("%s: the block is neither a file nor declarations nor statements: %v", b.at, err)
				continue
			}
			report := func(err error) {
				var e types.Error
				if !errors.As(err, &e) || whole || !e.Soft {
					t.Errorf("%s: the block does not compile: %v (what a fragment takes for granted is in fragmentHead of docs/go_test.go)", b.at, err)
				}
			}
			conf := types.Config{Importer: imp, Error: report}
			_, _ = conf.Check("p", fset, []*ast.File{file}, nil) // report has the errors
		}
	}
}

// parse reads a block, and says whether it is a whole file.
func parse(fset *token.FileSet, b block) (file *ast.File, whole bool, err error) {
	if strings.HasPrefix(b.text, "package ") {
		file, err = parser.ParseFile(fset, "block", b.text, 0)
		return file, true, err
	}
	file, err = parser.ParseFile(fset, "block", fragmentHead+b.text, 0)
	if err != nil {
		file, err = parser.ParseFile(fset, "block", fragmentHead+"func _() error {\n{\n"+b.text+"}\nreturn nil\n}\n", 0)
	}
	return file, false, err
}
