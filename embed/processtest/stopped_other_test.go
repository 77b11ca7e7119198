//go:build unix && !linux

package processtest

import "time"

// stopped cannot be asked here; it gives a process the time that it mostly takes.
func stopped(int) bool {
	<-time.After(50 * time.Millisecond)
	return true
}
