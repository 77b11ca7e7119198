package value

import "encoding/json"

// A Codec says how a value of type T is written as the data of a znode. Its functions may be called
// by any number of goroutines. The zero Codec is for T that is a string or a slice of bytes: the
// data are the bytes themselves.
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
