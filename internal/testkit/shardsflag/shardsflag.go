package shardsflag

import "flag"

// N is how many shards the ensembles of the tests have where a test does not say; zero means the default.
var N int

// Define defines the flag. The tests of each package that start ensembles call it.
func Define() {
	flag.IntVar(&N, "shards", 0, "how many shards the ensembles have where a test does not say: 1, 2 or 4; zero means one")
}
