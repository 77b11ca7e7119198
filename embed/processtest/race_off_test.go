//go:build !race

package processtest

const underRace = false
