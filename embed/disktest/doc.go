// Package disktest tests what the disk of a member can do to it: it fails, fills up, hangs, loses
// power, or holds what another build or another time has written. It has tests only.
//
//	go test ./embed/disktest -run TestDisk_EveryFailure -every
package disktest
