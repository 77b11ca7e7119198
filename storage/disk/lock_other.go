//go:build !unix || solaris || illumos || aix

package disk

import "os"

// flock does nothing: the node's own lock keeps other processes out.
func flock(*os.File) error { return nil }
