package outbox

import (
	"testing"
	"unsafe"
)

// Every write makes a Call. One more word would make it 160 bytes for the allocator.
func TestCallIsSmall(t *testing.T) {
	if size := unsafe.Sizeof(Call{}); unsafe.Sizeof(uintptr(0)) == 8 && size > 144 {
		t.Errorf("a Call has %d bytes, want at most 144", size)
	}
}
