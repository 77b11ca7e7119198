package recipetest

import "github.com/vivarium-go/vivarium/embed/election"

type leadership struct{ *election.Leadership }

func (l leadership) Revoked() <-chan struct{} { return nil }
func (l leadership) Release() error           { return l.Resign() }
