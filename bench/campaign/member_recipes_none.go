//go:build norecipes

package campaign

import (
	"context"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/lock"
)

// The members of a build from before these recipes have none of them free.

var recipeErrors []meaning

func (*Member) play(context.Context, opener, *embed.Session, *Request, *Reply) error {
	return errNotFree
}

func keyLock(*embed.Session, string, lock.Options) locker { return noLock{} }

// noLock is never free.
type noLock struct{}

func (noLock) Lock(context.Context) (*lock.Hold, error)    { return nil, errNotFree }
func (noLock) TryLock(context.Context) (*lock.Hold, error) { return nil, errNotFree }
