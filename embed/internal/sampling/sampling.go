package sampling

import (
	"crypto/x509"
	"iter"
	"time"

	"github.com/vivarium-go/vivarium/embed/metrics"
	"github.com/vivarium-go/vivarium/internal/certs"
	"github.com/vivarium-go/vivarium/internal/meter"
)

// Prefix begins the name of every sample.
const Prefix = "vivarium_"

// A To yields samples until its receiver has had enough.
type To struct {
	yield func(metrics.Sample) bool
	over  bool
}

// Samples returns the samples that list yields.
func Samples(list func(to *To)) iter.Seq[metrics.Sample] {
	return func(yield func(metrics.Sample) bool) { list(&To{yield: yield}) }
}

// Counter yields a counter. Labels are pairs of a name and a value.
func (to *To) Counter(name, help string, n uint64, labels ...string) {
	to.put(metrics.Sample{Name: name, Help: help, Kind: metrics.Counter, Value: float64(n)}, labels)
}

// Gauge yields a gauge.
func (to *To) Gauge(name, help string, v float64, labels ...string) {
	to.put(metrics.Sample{Name: name, Help: help, Kind: metrics.Gauge, Value: v}, labels)
}

// Is yields a gauge that is 1 if something is so, and 0 otherwise.
func (to *To) Is(name, help string, yes bool, labels ...string) {
	v := 0.0
	if yes {
		v = 1
	}
	to.Gauge(name, help, v, labels...)
}

// Histogram yields what a histogram has counted, in seconds.
func (to *To) Histogram(name, help string, h *meter.Histogram, labels ...string) {
	if to.over {
		return
	}
	r := h.Read()
	to.put(metrics.Sample{Name: name, Help: help, Kind: metrics.Distribution,
		Histogram: &metrics.Histogram{Bounds: bounds, Counts: r.Counts[:], Sum: r.Sum.Seconds()}}, labels)
}

// Certificates yields when the first of the own certificates expires, unless a function provides
// them, and how often their files could not be used. A nil store has none.
func (to *To) Certificates(store *certs.Store, use string) {
	if store == nil {
		return
	}
	to.Counter("tls_reload_failures_total",
		"Readings of the files with certificates that changed nothing, because they could not be used.",
		uint64(store.Failures()), "use", use)
	var first time.Time
	for _, chain := range store.Config().Certificates {
		leaf := chain.Leaf
		if leaf == nil && len(chain.Certificate) > 0 {
			leaf, _ = x509.ParseCertificate(chain.Certificate[0])
		}
		if leaf != nil && (first.IsZero() || leaf.NotAfter.Before(first)) {
			first = leaf.NotAfter
		}
	}
	if !first.IsZero() {
		to.Gauge("certificate_expiry_timestamp_seconds", "When the certificate in use expires, in seconds since 1970.", float64(first.Unix()), "use", use)
	}
}

func (to *To) put(s metrics.Sample, labels []string) {
	if to.over {
		return
	}
	s.Name = Prefix + s.Name
	for i := 0; i < len(labels); i += 2 {
		s.Labels = append(s.Labels, metrics.Label{Name: labels[i], Value: labels[i+1]})
	}
	to.over = !to.yield(s)
}

// bounds are those of meter.Histogram, in seconds.
var bounds = func() []float64 {
	list := make([]float64, meter.Buckets)
	for i := range list {
		list[i] = meter.Bound(i).Seconds()
	}
	return list
}()
