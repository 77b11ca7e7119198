// Package meter counts and times what the rooms of a node do, for its metrics.
//
//	var fsyncs meter.Histogram
//	fsyncs.Observe(took)
//	seen := fsyncs.Read()
//
// To count costs one atomic add, and to observe costs two. Nothing locks, allocates or runs in the
// background. The zero values are ready for use. They must not be copied after first use.
//
// Read sees each addition at most once, and every addition that had returned before Read began.
// What is added meanwhile may be in the buckets and not in the sum yet.
package meter
