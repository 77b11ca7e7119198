package replica

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"
)

func TestSoftQuotasAreCountedAndLoggedNowAndThen(t *testing.T) {
	var out bytes.Buffer
	q := softQuotas{log: slog.New(slog.NewTextHandler(&out, nil))}
	start := time.Now()
	lines := func() int { return strings.Count(out.String(), "\n") }
	over := func(at time.Duration, subtrees ...string) {
		q.note(subtrees, start.Add(at))
	}
	for range 100 {
		over(0, "/a", "/b")
	}
	if q.count.Load() != 100 || lines() != 2 {
		t.Errorf("%d transactions are counted, %d lines are logged, want 100 and 2", q.count.Load(), lines())
	}
	for i := range 10 * quotaNoticesMax {
		over(time.Second, fmt.Sprint("/", i))
	}
	if lines() != quotaNoticesMax {
		t.Errorf("%d lines within a minute, want %d", lines(), quotaNoticesMax)
	}
	over(2*quotaNoticePause, "/a")
	if lines() != quotaNoticesMax+1 || !strings.Contains(out.String(), "path=/a repeated=99\n") {
		t.Errorf("%d lines a minute later", lines())
	}
	over(2*quotaNoticePause, "/new")
	if lines() != quotaNoticesMax+2 {
		t.Errorf("%d lines, and one subtree has grown for the first time", lines())
	}
	before := lines()
	for minute := range 60 {
		over(time.Duration(minute+3)*time.Minute, "/a")
	}
	if n := lines() - before; n != 4 { // after 4, 8, 16 and 32 minutes
		t.Errorf("a subtree that grows for an hour is logged %d times", n)
	}
}
