// Package inside names the parts of a node that tests of this module replace. Being internal, it keeps them out of the
// public face.
package inside

import "github.com/vivarium-go/vivarium/engine"

// Seams is engine.Seams under a name that only this module can spell.
type Seams engine.Seams
