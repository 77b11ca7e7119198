// Package files is what a node asks of the file system that its directory is on. [OS] is the
// operating system's. Tests may use another: see package memory below this one.
//
//	f, err := files.OS.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o666)
//	err = f.SyncData()
//
// A System behaves as the functions of package os do on a Unix system, with the same errors. Code
// above this package compares descriptions of files with [Same], because os.SameFile knows only
// those of package os.
package files
