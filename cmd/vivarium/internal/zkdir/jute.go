package zkdir

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/vivarium-go/vivarium/tree"
)

// errShort says that a value goes on behind the end of what there is.
var errShort = errors.New("it is cut short")

// A decoder reads ZooKeeper's serialization, jute: big-endian integers, and lengths before what is
// variable. After an error, which err keeps, it returns zeros.
type decoder struct {
	left []byte
	err  error
}

// take returns the next n bytes. They stay in the buffer.
func (d *decoder) take(n int) []byte {
	if d.err == nil && (n < 0 || n > len(d.left)) {
		d.err = errShort
	}
	if d.err != nil {
		return nil
	}
	b := d.left[:n:n]
	d.left = d.left[n:]
	return b
}

func (d *decoder) byte() byte {
	if b := d.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (d *decoder) bool() bool { return d.byte() != 0 }

func (d *decoder) int32() int32 {
	if b := d.take(4); b != nil {
		return int32(binary.BigEndian.Uint32(b))
	}
	return 0
}

func (d *decoder) int64() int64 {
	if b := d.take(8); b != nil {
		return int64(binary.BigEndian.Uint64(b))
	}
	return 0
}

// buffer returns a copy of the next byte array. It may be nil.
func (d *decoder) buffer() []byte {
	n := d.int32()
	if n == -1 || d.err != nil {
		return nil
	}
	return append([]byte{}, d.take(int(n))...)
}

// string returns the next string. An absent one is empty.
func (d *decoder) string() string {
	n := d.int32()
	if n == -1 {
		return ""
	}
	return string(d.take(int(n)))
}

// count returns how many elements a vector has. Each takes at least size bytes.
func (d *decoder) count(size int) int {
	n := int(d.int32())
	if n == -1 {
		return 0
	}
	if d.err == nil && (n < 0 || n > len(d.left)/size) {
		d.err = fmt.Errorf("a vector of %d elements", n)
	}
	if d.err != nil {
		return 0
	}
	return n
}

// acl returns a list. Nil stands for the open one.
func (d *decoder) acl() []tree.ACL {
	list := make([]tree.ACL, d.count(12))
	for i := range list {
		list[i] = tree.ACL{Perms: tree.Perms(d.int32()), Scheme: d.string(), ID: d.string()}
	}
	open := tree.OpenACL()
	if len(list) == 0 || len(list) == 1 && list[0] == open[0] {
		return nil
	}
	return list
}

// strings returns a vector of strings.
func (d *decoder) strings() []string {
	list := make([]string, d.count(4))
	for i := range list {
		list[i] = d.string()
	}
	return list
}
