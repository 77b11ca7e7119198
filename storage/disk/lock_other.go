//go:build !unix || solaris || illumos || aix

package disk

import "os"

// flock leaves other processes to the node's own lock.
func flock(*os.File) error { return nil }
