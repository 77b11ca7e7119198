package campaign

import (
	"io"
	"testing"
	"time"
)

func TestJudgeGrowth(t *testing.T) {
	weigh := func(round int, sessions, znodes int64) weight {
		return weight{round: round, size: 3, sizes: sizes{"sessions": sessions, "znodes": znodes}}
	}
	few, many := int64(40), 2*40+bounded["sessions"]+1
	calm := []weight{weigh(1, few, 0), weigh(1, few, 0), weigh(1, few, 0), weigh(1, few, 0)}
	for _, test := range []struct {
		name   string
		during []weight
		ends   []weight
		want   int
	}{
		{"at rest", calm, []weight{weigh(1, few, 10), weigh(2, many-1, 10)}, 0},
		{"the tree may grow", calm, []weight{weigh(1, few, 10), weigh(2, few, 1e6)}, 0},
		{"in a round", calm, []weight{weigh(1, many, 10)}, 1},
		{"many were there before", append([]weight{weigh(1, many, 0)}, calm...), []weight{weigh(1, many, 10)}, 0},
		{"from round to round", nil, []weight{weigh(1, few, 10), weigh(2, few, 10), weigh(3, many, 10)}, 1},
		{"another size", nil, []weight{weigh(1, few, 10), {round: 2, size: 5, sizes: sizes{"sessions": many}}}, 0},
	} {
		c := &campaign{report: newReport(io.Discard, func() time.Duration { return 0 })}
		for _, end := range test.ends {
			c.judgeGrowth(test.during, end)
		}
		if got := len(c.report.mu.violations); got != test.want {
			t.Errorf("%s: %d violations, want %d: %q", test.name, got, test.want, c.report.mu.violations)
		}
	}
}

func TestKindOfFile(t *testing.T) {
	for name, want := range map[string]string{
		"/1/raft/x/0/tandb/node-1-1/000002.log": "raft logs", "/1/raft/x/0/tandb/node-1-1/MANIFEST-000001": "other raft files",
		"/1/image/1/000004.log": "images", "/1/identity": "other files",
	} {
		if got := kindOfFile(name); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}
