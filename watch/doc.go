// Package watch finds the watches that a change concerns and queues events for them. It makes no
// promise of compatibility to users of the library; they import embed.
//
//	w := registry.Add("/config", watch.Persistent, watch.Options{}, nil)
//	for e := range w.Events() {
//		// e.Type, e.Path, e.Zxid
//	}
//	return w.Err()
//
// The package owns registrations, streams, and the event queues of remote clients. It never blocks,
// calls no user code and starts no goroutine. It knows nothing of sessions, nor of what is in the
// tree. The engine hands it the changes of each transaction in zxid order, on the goroutine that
// applies.
//
// # What a watch is promised
//
// From the transaction at which it is armed, a watch gets an event for every later change that it
// matches: once, in order, and before any reader on this member sees it. Otherwise the watch ends,
// and its error says why.
//
//   - Deliver takes the registry's lock for one transaction. It matches the changes, queues the
//     events, and only then calls the function that makes the transaction visible. Add takes the
//     same lock. So every watch is armed between two transactions: readers already see the earlier
//     one, and the watch gets events of the later one.
//   - A queued event is in the buffer of the stream's channel, so the next receive gets it. Nothing
//     stands between Deliver and the watcher: an event can be received before readers see its
//     change.
//   - A watcher that lets its buffer fill up gets ErrOverflow and slows nobody down. The buffer has
//     a bound in events and one in bytes. After any end, the events in the buffer stay readable,
//     and the error is set before the channel is closed.
//
// A watcher is told of no znode that it may not read. So that it does not wait for what nobody will
// tell, a SetACL that changes whether it may read a znode ends its watches of that znode, and so does
// the creation of a znode that it may not read; see Registry.Deliver.
//
// The events are ZooKeeper's, with two differences. Every stream stands alone, so two watches of
// one path both get the event. One watch of a znode covers both its data and its children. The
// engine decides what the end of a session does to its watches.
//
// A Client keeps the watches of one ZooKeeper connection and has neither difference. Its promise is
// the same, but it holds for all its watches together, and it includes the order of events and
// answers.
//
// # What it costs
//
// A change costs one or two map lookups for the znode and its parent. It costs one more for each
// depth at which there are recursive watches, and a send for each watch that matches. Watches that
// do not match cost nothing. A watch at rest takes 80 bytes besides its path. After its first event
// it takes 64 bytes more, and 32 for each event, until its owner asks for the channel. The channel
// takes 144 bytes for a Once watch, and 2 KiB with the default buffer.
//
// # Why streams and clients have an index each
//
// The watches of streams and those of clients are in separate maps, with lists of their own. One
// index for both was built and measured against this one, in ten interleaved rounds. Its list
// entries name their owner by an interface, which adds 16 bytes to every watch. With the map, a
// stream takes 131 bytes instead of 115, and a client's watch 134 instead of 118. A change that
// nobody watches took 17 % more time with streams alone (15 to 29 % over the rounds). With clients
// alone it took 22 % more (20 to 26 %). An event to one stream took 8 to 13 % more. Only a registry
// that has both kinds was faster, by 15 %.
//
// One index saved only 27 of the package's 1,143 lines of code, because most rules differ. A client
// gets one event however many of its watches match, uses its watches up in silence, and counts
// paths as ZooKeeper does. A generic list type for both cost no memory, but saved only 4 lines. So
// there are two indexes. They share the lock, the order of transactions, and the lookup by depth.
package watch
