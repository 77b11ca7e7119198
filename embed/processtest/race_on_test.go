//go:build race

package processtest

// underRace says that members and parent run under the race detector, several times slower.
const underRace = true
