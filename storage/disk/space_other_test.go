//go:build !linux

package disk

import "testing"

func wantSpace(*testing.T, string, int64, int64) {}

func wantNoMore(*testing.T, string, int64) {}
