package campaign

import (
	"syscall"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
)

// setLink breaks or mends the connection from this member to another, or those of the clients in its
// process.
func (m *Member) setLink(to embed.MemberID, l link) {
	l.Delay = stretch(l.Delay)
	if to == gateways {
		m.wires.set(l)
		return
	}
	m.Faults.SetLink(to, embedtest.Link(l))
}

// setDisk breaks or mends this member's disk.
func setDisk(f *embedtest.Faults, d diskFault) {
	out := embedtest.Disk{On: embedtest.DiskCalls(d.On), After: d.After, Delay: stretch(d.Delay)}
	if d.Errno != 0 {
		out.Err = syscall.Errno(d.Errno)
	}
	f.SetDisk(out)
}
