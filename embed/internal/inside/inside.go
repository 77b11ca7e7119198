package inside

import "github.com/vivarium-go/vivarium/engine"

// Shards is how many shards the ensembles of this module's tests have where a test does not say; zero means the default. The
// tests' flag -shards sets it.
var Shards int

// Seams is engine.Seams under a name that only this module can spell.
type Seams engine.Seams
