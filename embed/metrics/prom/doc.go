// Package prom registers the metrics of Vivarium with Prometheus's own library.
//
//	prometheus.MustRegister(prom.Collector(node, gateway))
//
// It is a module of its own, so that client_golang and its dependencies come only to services that
// use it. A service that shows no other metrics needs only metrics.Handler.
package prom
