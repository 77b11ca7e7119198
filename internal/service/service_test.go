package service

import (
	"context"
	"errors"
	"io"
	"testing"
)

// A hollow error panics in all its methods.
type hollow struct{ cause error }

func (h *hollow) Error() string { return h.cause.Error() }
func (h *hollow) Unwrap() error { return h.cause }

// M94: the error of a service's function may be a nil pointer. What Call returns never panics.
func TestCall_AnErrorThatPanics(t *testing.T) {
	says := func(err error) error {
		_, err = Call(t.Context(), "Config.Found", func(context.Context) (bool, error) { return true, err })
		return err
	}
	var none *hollow
	if err := says(none); err == nil || err.Error() == "" || errors.Is(err, io.EOF) {
		t.Error(err)
	}
	refused := errors.New("refused")
	err := says(&hollow{refused})
	if as, ok := errors.AsType[*hollow](err); !errors.Is(err, refused) || !ok || as.cause != refused || err.Error() != "refused" {
		t.Errorf("%v is not what the service has said", err)
	}
	if err := says(io.EOF); err != io.EOF {
		t.Errorf("%v: readers compare io.EOF", err)
	}
	spoils := errors.Join(spoken(&spoiled{}), refused)
	if errors.Is(spoils, io.EOF) || errors.As(spoils, new(wait)) || !errors.Is(spoils, refused) {
		t.Errorf("%v is more than it is", spoils)
	}
}

// A spoiled error has a text, and panics when it is unwrapped.
type spoiled struct{ *hollow }

func (*spoiled) Error() string { return "spoiled" }

// A wait is an error of another kind.
type wait string

func (w wait) Error() string { return string(w) }
