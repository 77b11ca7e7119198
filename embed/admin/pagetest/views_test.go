package pagetest

import "testing"

func TestViews(t *testing.T) {
	e := startEnsemble(t)
	p := e.open(t, "editor", "ensemble")
	p.see("All is well.")
	t.Log(p.outline())
}
