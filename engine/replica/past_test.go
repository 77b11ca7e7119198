package replica

import (
	"path/filepath"
	"reflect"
	"testing"

	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/session"
	"github.com/vivarium-go/vivarium/storage"
)

// A Past is what a node makes of the same image and log. What the image has is not applied again,
// and what cannot be applied is an error.
func TestPast(t *testing.T) {
	r := foundedRig(t, 1)
	if err := r.Sync(); err != nil {
		t.Fatal(err)
	}
	image, index := r.Members(), r.Index()
	p, err := LoadPast(storage.Options{Disk: r.disk, Dir: filepath.Join(r.disk.Dir(), "image")}, command.HomeShard)
	if err != nil {
		t.Fatal(err)
	}
	if p.Zxid() != r.mu.Zxid || !reflect.DeepEqual(p.Members(), image) {
		t.Errorf("the image: zxid %x, %+v", p.Zxid(), p.Members())
	}
	join := command.EncodeJoin(session.Candidate{Directory: [16]byte{44}, Address: "four:4"}, 5)
	lost := command.EncodeRecover(session.Recovery{Lineage: session.Lineage{2}, Parent: session.Lineage{1}, Survivor: 4}, []session.MemberID{2}, 1<<32, 6)
	r.apply(join, lost)
	for i, cmd := range [][]byte{lost, join, lost} { // the first is of the image
		if err := p.Apply(index+uint64(i), cmd); err != nil {
			t.Fatal(err)
		}
	}
	if p.Zxid() < 1<<32 || p.Zxid() != r.mu.Zxid || !reflect.DeepEqual(p.Members(), r.Members()) {
		t.Errorf("the log: zxid %x, %+v, want %+v", p.Zxid(), p.Members(), r.Members())
	}
	if err := p.Apply(index+3, registers(2, 9, 3, "unknown")); err != nil {
		t.Errorf("a Register that is refused: %v", err)
	}
	if err := p.Apply(index+4, []byte{1}); err == nil {
		t.Error("garbage is applied")
	}
}

// The log of a further shard has the ends of sessions that the home shard has ended.
func TestPast_OfAFurtherShard(t *testing.T) {
	r := foundedRig(t, 1)
	p, err := LoadPast(storage.Options{Disk: r.disk, Dir: filepath.Join(r.disk.Dir(), "no image")}, command.HomeShard+1)
	if err != nil {
		t.Fatal(err)
	}
	purge := command.EncodePurge(5, []command.Ending{{Session: 7, Zxid: 3}, {Session: 8, Zxid: 3}})
	for index := range uint64(2) {
		if err := p.Apply(index+1, purge); err != nil || p.r.Index() != index+1 {
			t.Errorf("entry %d: %v", index+1, err)
		}
	}
}
