//go:build unix && !nolevels

package main

import "github.com/vivarium-go/vivarium/engine"

// levelMax is the highest feature level that this program reads.
const levelMax = engine.LevelMax
