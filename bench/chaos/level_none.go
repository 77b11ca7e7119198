//go:build unix && nolevels

package main

// levelMax is the level of a library from before feature levels.
const levelMax = 1
