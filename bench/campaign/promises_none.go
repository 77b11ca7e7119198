//go:build nolevels

package campaign

// readsAfterEvents does not hold in the builds from before feature levels.
const readsAfterEvents = false
