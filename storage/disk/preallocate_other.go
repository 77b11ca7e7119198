//go:build !linux

package disk

import (
	"errors"
	"os"
)

func fallocate(*os.File, int64, int64) error { return errors.ErrUnsupported }
