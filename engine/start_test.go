package engine

import (
	"syscall"
	"testing"
)

// M109: only a lack of room makes a node give up what it could do without. A lack of file descriptors
// says nothing of the disk.
func TestCramped_WithoutRoom(t *testing.T) {
	n := newNode(t)
	n.cramped = make(chan struct{}, 1)
	for lack, cramped := range map[error]int{
		nil: 0, syscall.EMFILE: 0, syscall.ENFILE: 0, syscall.ENOSPC: 1, syscall.EDQUOT: 1,
	} {
		n.diskWaiting(lack)
		if len(n.cramped) != cramped {
			t.Errorf("after %v it is cramped: %v", lack, len(n.cramped) > 0)
		}
		select {
		case <-n.cramped:
		default:
		}
	}
}
