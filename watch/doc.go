// Package watch decides which watches a change concerns and queues events for them. It makes no promise
// of compatibility to users of the library; they import embed.
//
// It owns registrations, streams, and the queues of remote clients. It never blocks, never calls user code, never starts a goroutine,
// and knows nothing of sessions or of what is in the tree: the engine hands it the changes of each
// transaction, in zxid order, on the goroutine that applies.
//
// # What a watch is promised
//
// From the transaction it is armed at, a watch gets an event for every later change that it matches: once,
// in order, and before any reader is shown the change. Or it ends, and its error says why.
//
//   - Deliver takes the registry's lock for one transaction: it matches, queues, and only then calls the
//     function that makes the transaction visible. Add takes the same lock. So a watch is armed between
//     two transactions, the earlier of which readers see and the later of which it will be told of.
//   - Queued means: in the buffer of the stream's channel, from which the next receive takes it. Nothing
//     stands between Deliver and the watcher, so what a reader is shown can be received.
//   - A watcher that lets its buffer fill up is told so (ErrOverflow) and slows nobody down. Events that
//     were buffered stay readable after any end, and the error is there before the channel is closed.
//
// Events are ZooKeeper's, with these differences: every stream stands alone, so two watches of one path both
// get the event, and one watch of a znode covers its data and its children. What a session's end does to
// its watches is the engine's business.
//
// A Client is without these differences: it is what ZooKeeper keeps for a connection. Its promise is the same, but for all its
// watches together and for the order of events and answers.
//
// # What it costs
//
// A change costs one or two map lookups for the znode and its parent, one for each depth at which there are
// recursive watches, and a send for each watch that matches. Watches that do not match cost nothing. At
// rest a watch takes 80 bytes besides its path. Told something, it takes 48 more and 32 for each event until
// somebody asks for the channel, which takes 144 bytes for a Once watch and 2 KiB with the default buffer.
//
// Read registry.go first, then stream.go, joint.go, lists.go and event.go.
package watch
