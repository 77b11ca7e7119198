package embedkit

import "github.com/vivarium-go/vivarium/internal/testkit"

var (
	must    = testkit.Must
	bounded = testkit.Context
	until   = testkit.Until
)
