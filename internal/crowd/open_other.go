//go:build !(darwin || linux)

package crowd

func openMax() int { return 0 }
