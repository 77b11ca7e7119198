//go:build !(darwin || freebsd || linux)

package files

import "errors"

func (system) Space(string) (free, size uint64, err error) { return 0, 0, errors.ErrUnsupported }
