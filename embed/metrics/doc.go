// Package metrics shows the metrics of a node and of its gateway, to Prometheus or anything else.
//
//	http.Handle("/metrics", metrics.Handler(node, gateway))
//
// A [Source] yields its metrics as a list of samples. Both *embed.Node and *gateway.Gateway are
// sources, and a service can write its own. [Write] and [Handler] show sources in the text format
// of Prometheus. Module embed/metrics/prom registers sources with Prometheus's own library. For
// another backend, range over Samples:
//
//	for s := range node.Samples() {
//		backend.Set(s.Name, s.Labels, s.Value)
//	}
//
// The package registers nothing, opens no port, starts no goroutine and needs nothing but the
// standard library. Two nodes in one process are two sources, and do not mix.
//
// # What a scrape costs
//
// A source reads what the node has in memory. It waits for no quorum, no disk and no shard that
// stands still, and works after Close. A metric that the source does not know at the moment is
// missing. An absent metric is not zero: a node that has failed has no leader and no margin.
//
// docs/metrics.md lists all metrics, what each is for, and what to be alerted of.
package metrics
