//go:build unix

// Chaos breaks ensembles of Vivarium at random while they are used, and checks that they keep every
// promise. README.md in the folder above explains the method and how to read the output.
//
// The campaign is that of package campaign. This program gives it real processes, real signals, TCP
// on loopback and a real disk. It runs itself again as the members: when a variable in its
// environment says so, it is a member and serves requests over pipes. With the build tag member it
// is nothing else: so it is built with older versions of the library, for -upgrade.
package main
