package lock

import "strings"

// A contender's data is its note. A line for each contender that its caller holds already follows,
// if the caller's ctx carries any. No path contains a line break.
const (
	holdingLine = "\nholding: "
	holdingMax  = 1024 // bytes of these lines; more paths are left out
)

// writeNote returns the data of a contender.
func writeNote(text string, holding []string) []byte {
	var b strings.Builder
	b.WriteString(text)
	for _, path := range holding {
		if b.Len()-len(text)+len(holdingLine)+len(path) > holdingMax {
			break
		}
		b.WriteString(holdingLine)
		b.WriteString(path)
	}
	if b.Len() == 0 {
		return nil
	}
	return []byte(b.String())
}

// readNote returns what writeNote was given.
func readNote(data []byte) (text string, holding []string) {
	text, lines, more := strings.Cut(string(data), holdingLine)
	if more {
		holding = strings.Split(lines, holdingLine)
	}
	return text, holding
}
