package inside

import (
	"flag"

	"github.com/vivarium-go/vivarium/engine"
)

// Shards is how many shards the ensembles of this module's tests have where a test does not say; zero means the default. The
// tests' flag -shards sets it.
var Shards int

// ShardsFlag defines that flag. The tests of each package that start ensembles call it.
func ShardsFlag() {
	flag.IntVar(&Shards, "shards", 0, "how many shards the ensembles have where a test does not say; zero means one")
}

// Seams is engine.Seams under a name that only this module can spell.
type Seams engine.Seams
