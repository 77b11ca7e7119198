package job

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/internal/queue"
	"github.com/vivarium-go/vivarium/embed/lock"
)

// ErrUnreadable says that the record of a job is not what this package writes. It is left as it is.
var ErrUnreadable = errors.New("the record of the job cannot be read")

// State is how far a tick has come.
type State string

// States of a tick.
const (
	Started State = "started" // it runs, or was cut short
	Done    State = "done"    // its run returned nil, or Tick.Commit
	Failed  State = "failed"  // its run returned an error
)

// A Record is what is recorded of a tick.
type Record struct {
	// Time is the tick's time in the schedule, in UTC.
	Time time.Time
	// State is how far the tick has come.
	State State
	// Attempt counts the runs of the tick, from 1.
	Attempt int
	// Missed is how many ticks since the one before do not run.
	Missed int `json:",omitempty"`
	// Member is where the last attempt ran, or zero if that was not known.
	Member embed.MemberID `json:",omitempty"`
	// Token is the fencing token of the last attempt.
	Token lock.Token
	// Began and Ended are by the clock of that member. Ended is zero in the state Started.
	Began time.Time
	Ended time.Time `json:",omitzero"`
	// Error is the error of a run that failed, cut to 256 bytes.
	Error string `json:",omitempty"`
}

// errorMax is how much of an error's text is kept, in bytes.
const errorMax = 256

// ticks is the data of a job's record.
type ticks struct {
	// Since is a time up to which all ticks are over: that at which the record was made, or that of
	// the last one that was too late to run.
	Since time.Time
	// Missed is how many ticks do not run since the newest that did.
	Missed int `json:",omitempty"`
	// Records are the last ticks, the newest first.
	Records []Record `json:",omitempty"`
}

// with returns the ticks with a newest one, which counts those that were missed before it. keep is
// the Keep of the job.
func (t *ticks) with(newest Record, keep int) *ticks {
	older := t.Records[:min(len(t.Records), keep-1)]
	return &ticks{Since: t.Since, Records: append([]Record{newest}, older...)}
}

// withNewest returns the ticks with another record of the newest one.
func (t *ticks) withNewest(newest Record) *ticks {
	return &ticks{Since: t.Since, Missed: t.Missed, Records: append([]Record{newest}, t.Records[1:]...)}
}

func decode(data []byte) (*ticks, error) {
	t := new(ticks)
	if err := json.Unmarshal(data, t); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	if t.Since.IsZero() {
		return nil, fmt.Errorf("%w: it does not say since when", ErrUnreadable)
	}
	return t, nil
}

// shorten cuts the text of an error.
func shorten(text string) string {
	if len(text) > errorMax {
		text = text[:errorMax]
	}
	return strings.ToValidUTF8(text, "")
}

// History returns the last ticks of a job, the newest first, as this node's replica knows them. A
// job that has never run has none. Errors: ErrUnreadable; those of embed.Session.Get except
// embed.ErrNoNode.
func History(ctx context.Context, s *embed.Session, dir, name string) ([]Record, error) {
	if err := isPath(dir); err != nil {
		return nil, fmt.Errorf("history: %w", err)
	}
	path := recordPath(queue.Child(dir, name))
	data, _, err := s.Get(ctx, path)
	if errors.Is(err, embed.ErrNoNode) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	t, err := decode(data)
	if err != nil {
		return nil, fmt.Errorf("history %s: %w", path, err)
	}
	return t.Records, nil
}

// recordPath returns the path of the record of the job at a path.
func recordPath(job string) string { return queue.Child(job, "ticks") }
