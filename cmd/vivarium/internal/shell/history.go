package shell

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// historyMax bounds the lines kept; older ones are forgotten.
const historyMax = 1000

// history is the lines of this run by their numbers, which `history` shows and `redo` takes.
type history struct {
	lines []string // the newest
	count int      // of all
}

func (h *history) add(line string) {
	h.lines = append(h.lines, line)
	if len(h.lines) > 2*historyMax {
		h.lines = slices.Clone(h.lines[historyMax:])
	}
	h.count++
}

// line returns a line by its number, or "" if there is none or it is forgotten.
func (h *history) line(i int) string {
	if i -= h.count - len(h.lines); i < 0 || i >= len(h.lines) {
		return ""
	}
	return h.lines[i]
}

// replace puts what was done again in the place of the redo.
func (h *history) replace(line string) { h.lines[len(h.lines)-1] = line }

// A recall is the lines of this run and earlier ones that the arrow keys bring back. It is kept in a file.
type recall struct {
	file  string   // "" if there is no place for one
	lines []string // the oldest first
}

// openRecall reads the file in the user's home, ~/.vivarium_history. What goes wrong with it is not worth a word: there is just no past.
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

// rewrite replaces the file, so that one who reads it meanwhile sees all of the old or all of the new.
func (r *recall) rewrite() {
	tmp := r.file + ".new"
	if os.WriteFile(tmp, []byte(strings.Join(r.lines, "\n")+"\n"), 0o600) == nil {
		_ = os.Rename(tmp, r.file)
	}
}

// Add takes a line, but one that repeats the last, and those with secrets: what is given to addauth is nobody's to find in a file.
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

// Len is how many lines there are.
func (r *recall) Len() int { return len(r.lines) }

// At returns a line, 0 being the newest.
func (r *recall) At(i int) string { return r.lines[len(r.lines)-1-i] }
