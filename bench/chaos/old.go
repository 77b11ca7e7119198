//go:build unix && member

package main

// main is the program of a member alone, for upgrade.go.
func main() { runMember() }
