package engine

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
	q.over(nil, start)
	for range 100 {
		q.over([]string{"/a", "/b"}, start)
	}
	q.over([]string{"/a"}, start.Add(quotaNoticePause))
	if q.count.Load() != 101 {
		t.Errorf("%d are counted", q.count.Load())
	}
	if a, b := strings.Count(out.String(), "path=/a"), strings.Count(out.String(), "path=/b"); a != 2 || b != 1 {
		t.Errorf("logged %d and %d times, want 2 and 1:\n%s", a, b, &out)
	}
	for i := range 3 * quotaNoticesMax {
		q.over([]string{fmt.Sprint("/", i)}, start)
		if len(q.logged) > quotaNoticesMax {
			t.Fatalf("%d subtrees are remembered", len(q.logged))
		}
	}
}
