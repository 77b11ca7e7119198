package metrics

import (
	"iter"
	"slices"
)

// A Kind says what a metric's value means.
type Kind uint8

// The kinds of metrics.
const (
	Counter      Kind = iota // grows, and begins at zero with each start of its source
	Gauge                    // goes up and down
	Distribution             // counts observations by their size; Sample.Histogram has them
)

// String returns the kind as Prometheus calls it.
func (k Kind) String() string {
	switch k {
	case Counter:
		return "counter"
	case Gauge:
		return "gauge"
	case Distribution:
		return "histogram"
	}
	return "untyped"
}

// A Label distinguishes the samples of one metric.
type Label struct{ Name, Value string }

// A Sample is one metric's value for one set of labels. Times are in seconds and sizes in bytes.
type Sample struct {
	Name   string // letters, digits and underscores
	Help   string // one sentence, the same in all samples of the name
	Kind   Kind   // likewise
	Labels []Label
	Value  float64 // of a Counter or a Gauge
	// Histogram is the value of a Distribution; nil for other kinds.
	Histogram *Histogram
}

// A Histogram is the value of a Distribution.
type Histogram struct {
	// Bounds are the upper bounds of the buckets, ascending. An observation that is equal to a
	// bound belongs to its bucket. They are shared: do not change them.
	Bounds []float64
	// Counts has how many observations each bucket has, those of smaller buckets not included. It
	// has one more element than Bounds, for what is larger than all of them.
	Counts []uint64
	Sum    float64 // of all observations
}

// Count returns how many observations there are.
func (h *Histogram) Count() (n uint64) {
	for _, c := range h.Counts {
		n += c
	}
	return n
}

// A Source yields metrics. Samples may be called at any time by any number of goroutines. Each use
// of what it returns reads anew. No two samples have the same name and the same labels.
type Source interface{ Samples() iter.Seq[Sample] }

// With returns a source that adds labels to all samples of another, so that two nodes of one
// process can be shown on one page:
//
//	metrics.With(node, metrics.Label{Name: "member", Value: "1"})
func With(source Source, labels ...Label) Source {
	return labelled{source, slices.Clone(labels)}
}

type labelled struct {
	source Source
	labels []Label
}

func (l labelled) Samples() iter.Seq[Sample] {
	return func(yield func(Sample) bool) {
		for s := range l.source.Samples() {
			s.Labels = slices.Concat(l.labels, s.Labels)
			if !yield(s) {
				return
			}
		}
	}
}
