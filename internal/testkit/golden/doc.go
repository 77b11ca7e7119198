// Package golden compares what code produces with files that were recorded earlier.
//
//	golden.Check(t, "testdata/stream.hex", hex.Dump(stream))
//
// After a change that is meant, run the test with -update and look at the diff of the files.
package golden
