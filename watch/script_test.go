package watch

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/vivarium-go/vivarium/internal/testkit/golden"
	"github.com/vivarium-go/vivarium/tree"
)

func TestScripts(t *testing.T) {
	golden.Scripts(t, "testdata/*.txt", func(t *testing.T) func(string) string {
		s := &script{t: t, registry: NewRegistry(), streams: make(map[string]*Stream)}
		return func(line string) string { return s.run(strings.Fields(line)) }
	})
}

type script struct {
	t        *testing.T
	registry *Registry
	streams  map[string]*Stream
	zxid     tree.Zxid
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
		w := s.registry.Add(words[2], modes[words[3]], Options{Buffer: buffer}, nil)
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
