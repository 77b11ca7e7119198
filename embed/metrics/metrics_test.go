package metrics_test

import (
	"errors"
	"iter"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/vivarium-go/vivarium/embed/metrics"
)

// list is a Source of fixed samples.
type list []metrics.Sample

func (l list) Samples() iter.Seq[metrics.Sample] { return slices.Values(l) }

func label(pairs ...string) (labels []metrics.Label) {
	for i := 0; i < len(pairs); i += 2 {
		labels = append(labels, metrics.Label{Name: pairs[i], Value: pairs[i+1]})
	}
	return labels
}

func text(t *testing.T, sources ...metrics.Source) string {
	t.Helper()
	var b strings.Builder
	if err := metrics.Write(&b, sources...); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestWrite_Text(t *testing.T) {
	waits := func(shard string, counts ...uint64) metrics.Sample {
		return metrics.Sample{Name: "wait_seconds", Help: "How long it waits.", Kind: metrics.Distribution, Labels: label("shard", shard),
			Histogram: &metrics.Histogram{Bounds: []float64{1e-06, 0.5, 2}, Counts: counts, Sum: 3.25}}
	}
	got := text(t, list{
		waits("2", 0, 0, 0, 0),
		{Name: "up", Kind: metrics.Gauge, Value: 1},
		{Name: "seen_total", Help: "A \\ and\na \"line\".", Labels: label("path", "a\\b\"c\nd"), Value: 1e15},
		waits("1", 1, 2, 0, 4),
	}, list{
		{Name: "seen_total", Help: "Not used.", Labels: label("a", "z", "path", "ß\xff"), Value: 0.1},
		{Name: "odd", Kind: metrics.Gauge, Labels: label("v", "nan"), Value: math.NaN()},
		{Name: "odd", Kind: metrics.Gauge, Labels: label("v", "inf"), Value: math.Inf(1)},
		{Name: "odd", Kind: metrics.Gauge, Labels: label("v", "less"), Value: math.Inf(-1)},
	})
	const want = `# TYPE odd gauge
odd{v="inf"} +Inf
odd{v="less"} -Inf
odd{v="nan"} NaN
# HELP seen_total Not used.
# TYPE seen_total counter
seen_total{a="z",path="ß` + "\uFFFD" + `"} 0.1
seen_total{path="a\\b\"c\nd"} 1e+15
# TYPE up gauge
up 1
# HELP wait_seconds How long it waits.
# TYPE wait_seconds histogram
wait_seconds_bucket{shard="1",le="1e-06"} 1
wait_seconds_bucket{shard="1",le="0.5"} 3
wait_seconds_bucket{shard="1",le="2"} 3
wait_seconds_bucket{shard="1",le="+Inf"} 7
wait_seconds_sum{shard="1"} 3.25
wait_seconds_count{shard="1"} 7
wait_seconds_bucket{shard="2",le="1e-06"} 0
wait_seconds_bucket{shard="2",le="0.5"} 0
wait_seconds_bucket{shard="2",le="2"} 0
wait_seconds_bucket{shard="2",le="+Inf"} 0
wait_seconds_sum{shard="2"} 3.25
wait_seconds_count{shard="2"} 0
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if help := text(t, list{{Name: "a", Help: "A \\ and\na \"line\"."}}); help != "# HELP a A \\\\ and\\na \"line\".\n# TYPE a counter\na 0\n" {
		t.Errorf("help: %s", help)
	}
	if got := text(t); got != "" {
		t.Errorf("of nothing: %q", got)
	}
}

func TestWrite_SortsLabels(t *testing.T) {
	given := label("shard", "1", "why", "lag", "member", "3")
	if got := text(t, list{{Name: "a", Labels: given}}); !strings.Contains(got, `a{member="3",shard="1",why="lag"} 0`) {
		t.Error(got)
	}
	if given[0].Name != "shard" {
		t.Error("the source's labels were sorted in place")
	}
}

// Two nodes of a process have the same metrics.
func TestWith(t *testing.T) {
	node := list{{Name: "a_total", Labels: label("shard", "1"), Value: 3}}
	if err := metrics.Write(&strings.Builder{}, node, node); err == nil {
		t.Error("two sources with the same samples were written")
	}
	got := text(t, metrics.With(node, label("member", "2")...), metrics.With(node, label("member", "1")...))
	if want := "# TYPE a_total counter\na_total{member=\"1\",shard=\"1\"} 3\na_total{member=\"2\",shard=\"1\"} 3\n"; got != want {
		t.Errorf("got\n%s", got)
	}
	for range metrics.With(append(node, node...), label("member", "2")...).Samples() {
		break // who stops early is yielded no more
	}
}

func TestWrite_Refuses(t *testing.T) {
	h := &metrics.Histogram{Bounds: []float64{1, 2}, Counts: make([]uint64, 3)}
	for name, c := range map[string]struct {
		want string
		list list
	}{
		"no name":         {`"" is no name`, list{{}}},
		"digit first":     {`"1a" is no name`, list{{Name: "1a"}}},
		"space":           {`"a b" is no name`, list{{Name: "a b"}}},
		"newline":         {`"a\n" is no name`, list{{Name: "a\n"}}},
		"le":              {`"le" is no name of a label`, list{{Name: "a", Labels: label("le", "1")}}},
		"underscores":     {`"__x" is no name of a label`, list{{Name: "a", Labels: label("__x", "1")}}},
		"empty label":     {`"" is no name of a label`, list{{Name: "a", Labels: label("", "1")}}},
		"label twice":     {"label x twice", list{{Name: "a", Labels: label("x", "1", "x", "2")}}},
		"kind":            {"unknown kind 9", list{{Name: "a", Kind: 9}}},
		"two kinds":       {"counter and a gauge", list{{Name: "a"}, {Name: "a", Kind: metrics.Gauge, Labels: label("x", "1")}}},
		"twice":           {"a is there twice", list{{Name: "a"}, {Name: "a"}}},
		"no histogram":    {"a is a histogram", list{{Name: "a", Kind: metrics.Distribution}}},
		"histogram":       {"a is a gauge", list{{Name: "a", Kind: metrics.Gauge, Histogram: h}}},
		"too few counts":  {"do not fit", list{{Name: "a", Kind: metrics.Distribution, Histogram: &metrics.Histogram{Bounds: h.Bounds, Counts: h.Counts[:2]}}}},
		"not ascending":   {"do not fit", list{{Name: "a", Kind: metrics.Distribution, Histogram: &metrics.Histogram{Bounds: []float64{2, 2}, Counts: h.Counts}}}},
		"infinite bounds": {"do not fit", list{{Name: "a", Kind: metrics.Distribution, Histogram: &metrics.Histogram{Bounds: []float64{2, math.Inf(1)}, Counts: h.Counts}}}},
	} {
		var b strings.Builder
		err := metrics.Write(&b, append(list{{Name: "ok"}}, c.list...))
		if err == nil || !strings.Contains(err.Error(), c.want) || b.Len() > 0 {
			t.Errorf("%s: %v, and %d bytes", name, err, b.Len())
		}
	}
}

// A broken is a writer that fails.
type broken struct{ err error }

func (b broken) Write([]byte) (int, error) { return 0, b.err }

func TestWrite_FailsWithItsWriter(t *testing.T) {
	full := errors.New("full")
	if err := metrics.Write(broken{full}, list{{Name: "a"}}); !errors.Is(err, full) {
		t.Error(err)
	}
}

func TestHandler(t *testing.T) {
	ask := func(sources ...metrics.Source) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		metrics.Handler(sources...).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		return w
	}
	w := ask(list{{Name: "a", Value: 7}})
	if w.Code != http.StatusOK || w.Body.String() != "# TYPE a counter\na 7\n" || w.Header().Get("Content-Type") != metrics.ContentType {
		t.Errorf("%d, %q, %q", w.Code, w.Body, w.Header())
	}
	if w := ask(list{{Name: "a b"}}); w.Code != http.StatusInternalServerError || !strings.Contains(w.Body.String(), "no name") {
		t.Errorf("%d, %q", w.Code, w.Body)
	}
}

func TestHistogram_Count(t *testing.T) {
	if n := (&metrics.Histogram{Counts: []uint64{1, 0, 5}}).Count(); n != 6 {
		t.Error(n)
	}
}

func TestKind_String(t *testing.T) {
	var names []string
	for k := range metrics.Distribution + 2 {
		names = append(names, k.String())
	}
	if got := strings.Join(names, " "); got != "counter gauge histogram untyped" {
		t.Error(got)
	}
}
