package shardsflag

import "flag"

// N is the number of shards of an ensemble whose test does not name one. Zero means the default.
var N int

// Define defines the flag. Each test package that starts ensembles calls it.
func Define() {
	flag.IntVar(&N, "shards", 0, "how many shards the ensembles have where a test does not say: 1, 2 or 4; zero means one")
}
