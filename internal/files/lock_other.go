//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package files

import "errors"

func (*file) Lock(bool) error { return errors.ErrUnsupported }
func (*file) unlock()         {}
