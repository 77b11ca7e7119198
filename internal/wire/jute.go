package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// ErrMalformed is wrapped by every decoding error. The bytes are not the record that they should
// be.
var ErrMalformed = errors.New("malformed record")

// Null is the null string. It is not UTF-8, so no string that is read equals it. It is not a valid
// path either, so code that forgets about Null does not confuse it with the root, which reads
// accept as the empty string.
const Null = "\xff"

// A coder reads a record or writes it. Each of its methods takes a pointer to a field, and reads or
// writes that field. The coder keeps its first error, so a record is checked once, at its end.
// After an error, everything that is read is zero. Writing has no errors.
type coder struct {
	b       []byte // the part of the record that is not read yet, or that has been written
	writing bool
	err     error
}

func (c *coder) fail(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf("%w: "+format, append([]any{ErrMalformed}, args...)...)
	}
}

// next returns the next n bytes without copying them, or nil if there are not so many.
func (c *coder) next(n int) []byte {
	if c.err != nil {
		return nil
	}
	if n > len(c.b) {
		c.fail("%d bytes are left, want %d", len(c.b), n)
		return nil
	}
	out := c.b[:n:n]
	c.b = c.b[n:]
	return out
}

func i32[T ~int32](c *coder, v *T) {
	if c.writing {
		c.b = binary.BigEndian.AppendUint32(c.b, uint32(*v))
		return
	}
	*v = 0
	if b := c.next(4); b != nil {
		*v = T(binary.BigEndian.Uint32(b))
	}
}

func (c *coder) i64(v *int64) {
	if c.writing {
		c.b = binary.BigEndian.AppendUint64(c.b, uint64(*v))
		return
	}
	*v = 0
	if b := c.next(8); b != nil {
		*v = int64(binary.BigEndian.Uint64(b))
	}
}

func (c *coder) flag(v *bool) {
	if c.writing {
		one := byte(0)
		if *v {
			one = 1
		}
		c.b = append(c.b, one)
		return
	}
	b := c.next(1)
	*v = b != nil && b[0] != 0
}

// bytes visits a buffer. A buffer that is read shares the frame's memory.
func (c *coder) bytes(v *[]byte) {
	n := int32(len(*v))
	if *v == nil {
		n = -1
	}
	i32(c, &n)
	if c.writing {
		c.b = append(c.b, *v...)
		return
	}
	*v = nil
	if n < -1 {
		c.fail("length %d", n)
	} else if n >= 0 {
		*v = c.next(int(n))
	}
}

func (c *coder) text(s *string) {
	if c.writing {
		if *s == Null {
			c.b = binary.BigEndian.AppendUint32(c.b, ^uint32(0))
			return
		}
		c.b = binary.BigEndian.AppendUint32(c.b, uint32(len(*s)))
		c.b = append(c.b, *s...)
		return
	}
	var b []byte
	c.bytes(&b)
	switch {
	case c.err != nil:
		*s = ""
	case b == nil:
		*s = Null
	case utf8.Valid(b):
		*s = string(b)
	default:
		*s = strings.ToValidUTF8(string(b), "\uFFFD")
	}
}

// list visits a list's count. When reading, it makes room for the elements. The caller visits the
// elements. Each of them takes at least that many bytes, so a count that cannot be true makes no
// room.
func list[T any](c *coder, v *[]T, least int) {
	n := int32(len(*v))
	if *v == nil {
		n = -1
	}
	i32(c, &n)
	if c.writing {
		return
	}
	*v = nil
	switch {
	case c.err != nil || n == -1:
	case int64(n)*int64(least) > int64(len(c.b)):
		c.fail("%d elements in %d bytes", n, len(c.b))
	default:
		*v = make([]T, max(n, 0))
	}
}

func (c *coder) texts(v *[]string) {
	list(c, v, 4)
	for i := range *v {
		c.text(&(*v)[i])
	}
}
