package metrics_test

import (
	"fmt"
	"iter"
	"os"

	"github.com/vivarium-go/vivarium/embed/metrics"
)

// A service shows metrics of its own beside those of its node.
type orders struct{ open, done float64 }

func (o *orders) Samples() iter.Seq[metrics.Sample] {
	return func(yield func(metrics.Sample) bool) {
		_ = yield(metrics.Sample{Name: "orders_open", Help: "Orders that wait.", Kind: metrics.Gauge, Value: o.open}) &&
			yield(metrics.Sample{Name: "orders_done_total", Help: "Orders carried out.", Kind: metrics.Counter, Value: o.done})
	}
}

func ExampleWrite() {
	if err := metrics.Write(os.Stdout, &orders{open: 2, done: 40}); err != nil {
		fmt.Println(err)
	}
	// Output:
	// # HELP orders_done_total Orders carried out.
	// # TYPE orders_done_total counter
	// orders_done_total 40
	// # HELP orders_open Orders that wait.
	// # TYPE orders_open gauge
	// orders_open 2
}
