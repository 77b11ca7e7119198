// Package rank has mutexes that know their place in the order of locks.
//
// There is one order for all packages. engine/doc.go lists it and says what each lock is for.
// [Order] is the same list for programs, and a test in engine compares the two. A goroutine that
// holds a lock may acquire only locks below it.
//
// In a plain build a Mutex is a sync.Mutex and costs nothing more. A build with the tag lockrank
// checks every Lock against the locks that its goroutine holds. If a Lock breaks the order, the
// process prints both locks and the stacks that acquired them, and ends. It does not panic:
// something could recover the panic, and the test would pass. So a test finds a wrong order as soon
// as it runs through it, even if no deadlock happens at that moment.
//
// With the tag it is wrong to
//
//   - acquire, or try to acquire, a lock above one that is held, or the same lock again;
//   - acquire a second lock of the same place, unless Ordered was called on both, in that order;
//   - acquire a lock for reading where it may not be acquired for writing, because a writer may be
//     waiting;
//   - release a lock that another goroutine has acquired.
package rank
