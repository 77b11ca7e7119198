// Package rank has mutexes that know their place in the order of locks.
//
// The order is one for all packages. engine/doc.go is its text and says what each lock is for. Order is
// the same list for programs, and a test in engine holds the two together. A goroutine that holds a lock
// may take those below it.
//
// In a plain build a Mutex is a sync.Mutex and costs nothing more. In a build with the tag lockrank every
// Lock is compared with what its goroutine holds. What breaks the order ends the process: it prints both
// locks, and the stacks at which they were taken. It does not panic, for a panic may be recovered on its
// way up, and the test pass. So any test that merely passes a wrong order finds it, whether or not
// somebody stands in the way at that moment.
//
// With the tag it is wrong
//
//   - to take a lock above one that is held, or that same lock again, or to try to;
//   - to take a second lock of the same place, but where Ordered is called: those made first come first;
//   - to take a lock for reading where it may not be taken for writing: a writer may wait in between;
//   - to give a lock back that another goroutine has taken.
//
// Read order.go first. checked.go has the build with the tag, plain.go that without.
package rank
