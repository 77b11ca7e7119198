// Package powercut makes the directories that a power cut may leave, for the tests of this module.
// It carries no compatibility promise.
//
// A power cut leaves less than a crash does. Each name and each content that was not fsynced may be
// there or not, independent of all others. A [Platter] watches the mutating calls on a directory.
// From the fsyncs among them it knows what must survive. It writes copies in which the rest is
// missing, or present by luck. So it finds code that relies on an order it has not asked the disk
// for.
//
// It reads the directory with the operating system's own calls and never changes it.
package powercut
