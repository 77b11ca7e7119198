//go:build !nolevels

package campaign

// readsAfterEvents says that a read after an event shows the change. Members of older builds are
// not held to what was mended since, so a build tag leaves it out.
const readsAfterEvents = true
