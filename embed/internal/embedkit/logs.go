package embedkit

import (
	"bytes"
	"encoding/json"
	"slices"
	"sync"

	"github.com/vivarium-go/vivarium/embed"
)

// A Record is a log that tests read line by line.
type Record struct {
	mu    sync.Mutex
	lines []map[string]any
}

// Write takes a line of JSON.
func (r *Record) Write(b []byte) (int, error) {
	var l map[string]any
	if err := json.NewDecoder(bytes.NewReader(b)).Decode(&l); err != nil {
		return 0, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, l)
	return len(b), nil
}

// All returns all lines.
func (r *Record) All() []map[string]any {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.lines)
}

// Of returns the lines of a member with one of the messages.
func (r *Record) Of(member embed.MemberID, messages ...string) (found []map[string]any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range r.lines {
		if message, _ := l["msg"].(string); slices.Contains(messages, message) && l["member"] == float64(member) {
			found = append(found, l)
		}
	}
	return found
}
