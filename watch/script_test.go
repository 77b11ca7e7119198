package watch

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/vivarium-go/vivarium/tree"
)

var update = flag.Bool("update", false, "write what the scripts answered into testdata")

// A script is prose (lines with #), then blocks: commands, a line of dashes, and their answers.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("scripts: %v, %v", files, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			s := &script{t: t, registry: NewRegistry(), streams: make(map[string]*Stream)}
			s.runFile(file)
		})
	}
}

type script struct {
	t        *testing.T
	registry *Registry
	streams  map[string]*Stream
	zxid     tree.Zxid
}

func (s *script) runFile(file string) {
	text, err := os.ReadFile(file)
	if err != nil {
		s.t.Fatal(err)
	}
	var got []string
	for block := range strings.SplitSeq(strings.TrimSpace(string(text)), "\n\n") {
		input, _, found := strings.Cut(block, "\n----")
		got = append(got, input)
		if !found {
			continue // prose
		}
		var answers []string
		for line := range strings.Lines(input) {
			answers = append(answers, s.run(strings.Fields(line)))
		}
		got[len(got)-1] += "\n----\n" + strings.Join(answers, "\n")
	}
	result := strings.Join(got, "\n\n") + "\n"
	if *update {
		if err := os.WriteFile(file, []byte(result), 0o644); err != nil {
			s.t.Fatal(err)
		}
		return
	}
	if result != string(text) {
		s.t.Errorf("%s answers:\n%s", file, result)
	}
}

// run answers one command: "watch NAME PATH MODE [BUFFER]", "receive NAME", "close NAME", or a
// transaction of words "create PATH", "set PATH", "delete PATH".
func (s *script) run(words []string) string {
	modes := map[string]Mode{"once": Once, "persistent": Persistent, "recursive": Recursive}
	switch words[0] {
	case "watch":
		buffer := 0
		if len(words) > 4 {
			buffer, _ = strconv.Atoi(words[4])
		}
		w := s.registry.Add(words[2], modes[words[3]], buffer, nil)
		s.streams[words[1]] = w
		return fmt.Sprintf("armed zxid=%d", w.Zxid())
	case "receive":
		return s.receive(s.streams[words[1]])
	case "close":
		s.streams[words[1]].Close()
		return "ok"
	}
	types := map[string]tree.ChangeType{"create": tree.Created, "set": tree.DataChanged, "delete": tree.Deleted}
	var changes []tree.Change
	for ; len(words) > 1; words = words[2:] {
		typ, ok := types[words[0]]
		if !ok {
			s.t.Fatalf("%q is not a command", words)
		}
		changes = append(changes, tree.Change{Type: typ, Path: words[1]})
	}
	s.zxid++
	s.registry.Deliver(s.zxid, changes, nil)
	return fmt.Sprintf("zxid=%d", s.zxid)
}

func (s *script) receive(w *Stream) string {
	var texts []string
	for {
		select {
		case e, open := <-w.Events():
			if !open {
				return strings.Join(append(texts, fmt.Sprintf("ended: %v", w.Err())), ", ")
			}
			texts = append(texts, fmt.Sprintf("%v %s zxid=%d", e.Type, e.Path, e.Zxid))
		default:
			return strings.Join(append(texts, "live"), ", ")
		}
	}
}
