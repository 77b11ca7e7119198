// Package powercut makes the directories that a power cut may leave, for the tests of this module. It carries no
// compatibility promise.
//
// A power cut leaves less than a crash does: of what was not fsynced, names and contents, each may be there or not, whatever
// became of the others. A [Platter] watches the mutating calls of a directory, knows from the fsyncs among them what has to
// be there, and writes copies in which the rest is missing, or there by luck. So it finds what relies on an order that
// nobody has asked the disk for.
//
// It reads the directory with the operating system's own calls and never changes it.
package powercut
