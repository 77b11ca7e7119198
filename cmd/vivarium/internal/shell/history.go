package shell

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// historyMax limits how many lines are kept.
const historyMax = 1000

// history holds the lines of this run by number. The command history shows the numbers, and redo
// uses them.
type history struct {
	lines []string // the newest ones
	count int      // of all lines
}

func (h *history) add(line string) {
	h.lines = append(h.lines, line)
	if len(h.lines) > 2*historyMax {
		h.lines = slices.Clone(h.lines[historyMax:])
	}
	h.count++
}

// line returns the line with a number, or "" if there is none or it is no longer kept.
func (h *history) line(i int) string {
	if i -= h.count - len(h.lines); i < 0 || i >= len(h.lines) {
		return ""
	}
	return h.lines[i]
}

// replace replaces the redo by the line that it repeats.
func (h *history) replace(line string) { h.lines[len(h.lines)-1] = line }

// A recall holds the lines of this run and of earlier runs, for the arrow keys. A file keeps it.
type recall struct {
	file  string   // "" if there is no place for a file
	lines []string // the oldest first
}

// openRecall reads ~/.vivarium_history. It ignores errors: then the history is just empty.
func openRecall() *recall {
	home, err := os.UserHomeDir()
	if err != nil {
		return &recall{}
	}
	return readRecall(filepath.Join(home, ".vivarium_history"))
}

func readRecall(file string) *recall {
	r := &recall{file: file}
	b, _ := os.ReadFile(file)
	for line := range strings.Lines(string(b)) {
		if line = strings.TrimRight(line, "\r\n"); line != "" {
			r.lines = append(r.lines, line)
		}
	}
	if len(r.lines) > historyMax {
		r.lines = slices.Clone(r.lines[len(r.lines)-historyMax:])
		r.rewrite()
	}
	return r
}

// rewrite replaces the file at once, so that another shell reads either the old file or the new
// one.
func (r *recall) rewrite() {
	tmp := r.file + ".new"
	if os.WriteFile(tmp, []byte(strings.Join(r.lines, "\n")+"\n"), 0o600) == nil {
		_ = os.Rename(tmp, r.file)
	}
}

// Add adds a line. It skips a line that repeats the last one, and any addauth, because no file may
// keep secrets.
func (r *recall) Add(line string) {
	list := words(line)
	if list == nil || list[0] == "addauth" || len(r.lines) > 0 && r.lines[len(r.lines)-1] == line {
		return
	}
	if r.lines = append(r.lines, line); len(r.lines) > historyMax {
		r.lines = r.lines[1:]
	}
	if r.file == "" {
		return
	}
	f, err := os.OpenFile(r.file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return
	}
	_, _ = f.WriteString(line + "\n")
	_ = f.Close()
}

// Len returns how many lines there are.
func (r *recall) Len() int { return len(r.lines) }

// At returns a line. 0 is the newest.
func (r *recall) At(i int) string { return r.lines[len(r.lines)-1-i] }
