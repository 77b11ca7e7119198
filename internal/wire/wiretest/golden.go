package wiretest

import (
	_ "embed"
	"encoding/hex"
	"strings"
	"testing"
)

//go:embed golden.txt
var text string

// Golden returns the frames by their names.
func Golden(t testing.TB) map[string][]byte {
	t.Helper()
	frames := make(map[string][]byte)
	for stanza := range strings.SplitSeq(text, "\n\n") {
		var lines []string
		for line := range strings.Lines(stanza) {
			if !strings.HasPrefix(line, "#") {
				lines = append(lines, strings.TrimSpace(line))
			}
		}
		if len(lines) == 0 {
			continue
		}
		frame, err := hex.DecodeString(strings.ReplaceAll(strings.Join(lines[1:], ""), " ", ""))
		if err != nil {
			t.Fatalf("%s: %v", lines[0], err)
		}
		frames[lines[0]] = frame
	}
	return frames
}
