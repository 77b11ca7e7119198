package tree

import (
	"encoding/binary"
	"fmt"
	"strconv"
)

// Validate returns ErrInvalidMode unless the width is one of the constants above.
func (w Width) Validate() error {
	if w > Text {
		return ErrInvalidMode
	}
	return nil
}

// Format returns the data of a znode that is a number. The number fits into the width.
func (w Width) Format(n int64) []byte {
	switch w {
	case Int32:
		return binary.BigEndian.AppendUint32(nil, uint32(n))
	case Text:
		return strconv.AppendInt(nil, n, 10)
	}
	return binary.BigEndian.AppendUint64(nil, uint64(n))
}

// Parse returns the number that is a znode's data. Other data is ErrNotNumber.
func (w Width) Parse(data []byte) (int64, error) { return w.parse(string(data)) }

func (w Width) parse(data string) (int64, error) {
	if data == "" {
		return 0, nil
	}
	want := "8 bytes"
	switch w {
	case Int64:
		if len(data) == 8 {
			return int64(binary.BigEndian.Uint64([]byte(data))), nil
		}
	case Int32:
		if len(data) == 4 {
			return int64(int32(binary.BigEndian.Uint32([]byte(data)))), nil
		}
		want = "4 bytes"
	case Text:
		if n, err := strconv.ParseInt(data, 10, 64); err == nil {
			return n, nil
		}
		want = "decimal digits"
	}
	return 0, fmt.Errorf("%w: %d bytes, not %s", ErrNotNumber, len(data), want)
}
