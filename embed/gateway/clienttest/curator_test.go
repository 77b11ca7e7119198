package clienttest

import "testing"

// Curator's locks, semaphores and elections behave the same with Vivarium as with ZooKeeper.
func TestCurator(t *testing.T) {
	t.Parallel()
	run := curator(t, "testdata/CuratorRecipes.java")
	compare(t, "curator", func(t *testing.T, s *system) string { return runScript(t, s, run(s.addrs())) })
}
