package view

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/vivarium-go/vivarium/embed"
)

// decoder checks the options and returns the function that decodes.
func decoder[T any](o Options[T]) (func([]byte) (T, error), error) {
	var errs []error
	if o.Depth < 0 {
		errs = append(errs, fmt.Errorf("%w: Options.Depth is %d", embed.ErrInvalidArgument, o.Depth))
	}
	if o.History < 0 {
		errs = append(errs, fmt.Errorf("%w: Options.History is %d", embed.ErrInvalidArgument, o.History))
	}
	decode := o.Codec.Decode
	if decode == nil {
		t := reflect.TypeFor[T]()
		switch {
		case t.Kind() == reflect.String:
			decode = func(data []byte) (v T, err error) {
				reflect.ValueOf(&v).Elem().SetString(string(data))
				return v, nil
			}
		case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8:
			decode = func(data []byte) (v T, err error) {
				reflect.ValueOf(&v).Elem().SetBytes(data)
				return v, nil
			}
		default:
			errs = append(errs, fmt.Errorf("%w: Options.Codec has no Decode, and %v is neither a string nor a slice of bytes", embed.ErrInvalidArgument, t))
		}
	}
	return decode, errors.Join(errs...)
}
