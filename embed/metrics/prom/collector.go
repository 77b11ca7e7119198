package prom

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/vivarium-go/vivarium/embed/metrics"
)

// Collector returns a collector of all samples of the sources. Each collection reads them anew; see
// metrics.Source for what that costs.
//
// The collector is unchecked: it describes nothing beforehand, because what a node knows changes.
// So a registry does not notice on registration that two collectors have the same samples. It
// reports that when it collects. To register two nodes of one process, give each a label with
// prometheus.WrapRegistererWith.
func Collector(sources ...metrics.Source) prometheus.Collector { return collector(sources) }

type collector []metrics.Source

// Describe implements prometheus.Collector.
func (collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c collector) Collect(to chan<- prometheus.Metric) {
	for _, source := range c {
		for s := range source.Samples() {
			to <- metric(s)
		}
	}
}

// metric returns a sample as a metric, or one that reports why it cannot be one.
func metric(s metrics.Sample) prometheus.Metric {
	names, values := make([]string, len(s.Labels)), make([]string, len(s.Labels))
	for i, l := range s.Labels {
		names[i], values[i] = l.Name, l.Value
	}
	desc := prometheus.NewDesc(s.Name, s.Help, names, nil)
	made, err := prometheus.Metric(nil), error(nil)
	switch h := s.Histogram; {
	case (s.Kind == metrics.Distribution) != (h != nil) || h != nil && len(h.Counts) != len(h.Bounds)+1:
		err = fmt.Errorf("%s is a %v whose Histogram does not fit", s.Name, s.Kind)
	case h != nil:
		made, err = prometheus.NewConstHistogram(desc, h.Count(), h.Sum, cumulative(h), values...)
	case s.Kind == metrics.Counter:
		made, err = prometheus.NewConstMetric(desc, prometheus.CounterValue, s.Value, values...)
	case s.Kind == metrics.Gauge:
		made, err = prometheus.NewConstMetric(desc, prometheus.GaugeValue, s.Value, values...)
	default:
		err = fmt.Errorf("%s has the unknown kind %d", s.Name, s.Kind)
	}
	if err != nil {
		return prometheus.NewInvalidMetric(desc, err)
	}
	return made
}

// cumulative returns the buckets as client_golang wants them: each with all smaller ones.
func cumulative(h *metrics.Histogram) map[float64]uint64 {
	buckets := make(map[float64]uint64, len(h.Bounds))
	var n uint64
	for i, bound := range h.Bounds {
		n += h.Counts[i]
		buckets[bound] = n
	}
	return buckets
}
