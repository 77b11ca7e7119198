package inside

import "github.com/vivarium-go/vivarium/engine"

// Seams is engine.Seams under a name that only this module can spell.
type Seams engine.Seams
