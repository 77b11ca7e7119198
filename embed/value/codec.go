package value

import (
	"encoding/json"
	"fmt"

	"github.com/vivarium-go/vivarium/embed"
)

// A Codec says how a value of type T is written as the data of a znode. Its functions may be called
// by any number of goroutines. Decode may keep the data.
//
// If T is string or []byte, the zero Codec writes the bytes themselves. For every other T, a call
// that needs a function which is nil fails with embed.ErrInvalidArgument.
type Codec[T any] struct {
	Encode func(T) ([]byte, error)
	Decode func([]byte) (T, error)
}

// JSON returns the codec of package encoding/json.
func JSON[T any]() Codec[T] {
	return Codec[T]{
		Encode: func(v T) ([]byte, error) { return json.Marshal(v) },
		Decode: func(data []byte) (v T, err error) {
			err = json.Unmarshal(data, &v)
			return v, err
		},
	}
}

// encode writes a value as data.
func (c Codec[T]) encode(v T) ([]byte, error) {
	if c.Encode != nil {
		return c.Encode(v)
	}
	switch p := any(&v).(type) {
	case *string:
		return []byte(*p), nil
	case *[]byte:
		return *p, nil
	}
	return nil, fmt.Errorf("%w: Codec.Encode is nil, and %T is neither string nor []byte", embed.ErrInvalidArgument, v)
}

// decode reads data as a value.
func (c Codec[T]) decode(data []byte) (v T, err error) {
	if c.Decode != nil {
		return c.Decode(data)
	}
	switch p := any(&v).(type) {
	case *string:
		*p = string(data)
		return v, nil
	case *[]byte:
		*p = data
		return v, nil
	}
	return v, fmt.Errorf("%w: Codec.Decode is nil, and %T is neither string nor []byte", embed.ErrInvalidArgument, v)
}
