//go:build !linux

package engine

import "time"

func bootTime() time.Duration { return monotonic() }
