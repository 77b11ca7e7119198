//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package replication

import (
	"errors"
	"os"
)

// lockFile refuses. Without a lock that ends with the process, nothing proves that a predecessor is
// gone.
func lockFile(*os.File, bool) error { return errors.ErrUnsupported }
