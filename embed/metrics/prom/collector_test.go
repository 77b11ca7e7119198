package prom

import (
	"bytes"
	"iter"
	"log/slog"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/gateway"
	"github.com/vivarium-go/vivarium/embed/metrics"
)

// list is a Source of fixed samples.
type list []metrics.Sample

func (l list) Samples() iter.Seq[metrics.Sample] { return slices.Values(l) }

// collected returns what a registry with the collector shows, in the text format.
func collected(t *testing.T, sources ...metrics.Source) string {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(Collector(sources...))
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&b, f); err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

// written returns what metrics.Write shows, after Prometheus's parser has read it.
func written(t *testing.T, sources ...metrics.Source) string {
	t.Helper()
	var b bytes.Buffer
	if err := metrics.Write(&b, sources...); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(&b)
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	var again bytes.Buffer
	for _, name := range slices.Sorted(func(yield func(string) bool) {
		for name := range families {
			if !yield(name) {
				return
			}
		}
	}) {
		if _, err := expfmt.MetricFamilyToText(&again, families[name]); err != nil {
			t.Fatal(err)
		}
	}
	return again.String()
}

func label(pairs ...string) (labels []metrics.Label) {
	for i := 0; i < len(pairs); i += 2 {
		labels = append(labels, metrics.Label{Name: pairs[i], Value: pairs[i+1]})
	}
	return labels
}

// Prometheus's parser reads from Write what client_golang makes of the same samples.
func TestCollector_AgreesWithWrite(t *testing.T) {
	h := func(counts ...uint64) *metrics.Histogram {
		return &metrics.Histogram{Bounds: []float64{1e-6, 0.5, 2}, Counts: counts, Sum: 12.5}
	}
	source := list{
		{Name: "wait_seconds", Help: "How long.", Kind: metrics.Distribution, Labels: label("shard", "2"), Histogram: h(0, 0, 0, 0)},
		{Name: "up", Help: "Whether \\ it\nis \"up\".", Kind: metrics.Gauge, Value: 1},
		{Name: "wait_seconds", Help: "How long.", Kind: metrics.Distribution, Labels: label("shard", "1"), Histogram: h(1, 2, 0, 4)},
		{Name: "seen_total", Help: "Seen.", Kind: metrics.Counter, Labels: label("z", "a\\b\"c\nd", "a", "ß"), Value: 1e15},
		{Name: "odd", Help: "Odd.", Kind: metrics.Gauge, Labels: label("v", "inf"), Value: math.Inf(-1)},
		{Name: "odd", Help: "Odd.", Kind: metrics.Gauge, Labels: label("v", "nan"), Value: math.NaN()},
	}
	got, want := collected(t, source), written(t, source)
	if got != want {
		t.Errorf("collected\n%s\nwritten\n%s", got, want)
	}
	if strings.Count(want, "\n") < 20 {
		t.Errorf("only\n%s", want)
	}
}

// The same for a node and its gateway, after both were closed: then nothing changes in between.
func TestCollector_OfANode(t *testing.T) {
	quiet := slog.New(slog.DiscardHandler)
	n, err := embed.Start(embed.Config{Dir: t.TempDir(), Logger: quiet, RequestTimeout: time.Minute, SessionTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	if err := n.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	g, err := gateway.Start(n, gateway.Config{Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	s, err := n.NewSession(t.Context(), embed.SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Create(t.Context(), "/a", []byte("a"), embed.Persistent); err != nil {
		t.Fatal(err)
	}
	if open := collected(t, n, g); !strings.Contains(open, `vivarium_sessions{kind="own"} 1`) {
		t.Error(open)
	}
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	got, want := collected(t, n, g), written(t, n, g)
	if got != want {
		t.Errorf("collected\n%s\nwritten\n%s", got, want)
	}
}

// Two nodes need a label. Without it the registry reports their equal samples.
func TestCollector_TwoSources(t *testing.T) {
	node := list{{Name: "a_total", Help: "A.", Value: 3}}
	reg := prometheus.NewRegistry()
	for _, member := range []string{"1", "2"} {
		prometheus.WrapRegistererWith(prometheus.Labels{"member": member}, reg).MustRegister(Collector(node))
	}
	families, err := reg.Gather()
	if err != nil || len(families) != 1 || len(families[0].GetMetric()) != 2 {
		t.Errorf("%v, %v", families, err)
	}
	reg = prometheus.NewRegistry()
	reg.MustRegister(Collector(node, node))
	if _, err := reg.Gather(); err == nil {
		t.Error("equal samples of two sources were shown")
	}
}

// A sample that is wrong makes the collection fail. It does not panic.
func TestCollector_Refuses(t *testing.T) {
	for name, s := range map[string]metrics.Sample{
		"kind":         {Name: "a", Kind: 9},
		"no histogram": {Name: "a", Kind: metrics.Distribution},
		"histogram":    {Name: "a", Kind: metrics.Gauge, Histogram: &metrics.Histogram{Counts: []uint64{1}}},
		"counts":       {Name: "a", Kind: metrics.Distribution, Histogram: &metrics.Histogram{}},
		"name":         {Name: "", Kind: metrics.Gauge},
		"label":        {Name: "a", Kind: metrics.Gauge, Labels: label("", "1")},
		"label twice":  {Name: "a", Kind: metrics.Gauge, Labels: label("x", "1", "x", "2")},
	} {
		reg := prometheus.NewRegistry()
		reg.MustRegister(Collector(list{s}))
		if _, err := reg.Gather(); err == nil {
			t.Errorf("%s: was collected", name)
		}
	}
}
