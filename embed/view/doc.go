// Package view shows what a subtree holds, decoded and in this process, with its changes in order.
// It is for what is read often and changed seldom: configuration, routing tables, registries. A view
// is a local read: it lags behind other members by replication, as a rule milliseconds, and by the
// whole cut while this node is cut off. It grants nothing to anybody. Whatever must not be decided
// from an old state belongs in a transaction with a check, such as embed.OpCheckMzxid.
//
//	v, err := view.Open(ctx, session, "/services", view.Options[Service]{Codec: value.JSON[Service]()})
//	if err != nil {
//		return err
//	}
//	defer v.Close()
//	service, ok := v.Get("/services/billing")
//
// # What a view promises
//
//   - It is whole when Open returns, and also when the znode is missing, or is deleted and created
//     again.
//   - What it shows is the subtree at one zxid, and it never goes back. A transaction is shown as a
//     whole or not at all.
//   - Changes yields every change after that, in order and once. A znode is known by its Czxid and
//     Mzxid, so one that was deleted and created again is not taken for the old one.
//     View.All has the present state, and Changes, an iter.Seq2, goes on from its zxid.
//   - Data that does not decode changes Entry.Err and Entry.Stat, but Entry.Value stays the last good
//     one. Nothing is left out, and the next write may mend it.
//   - It ends only by Close, or with its session.
//
// It shows only what the session may read. If a SetACL takes the permission to read a znode away,
// that is a gap, see below, and the view shows the znode as deleted. If that is the view's own znode,
// everything below it goes with it. If a SetACL gives the permission, the znode is there again.
//
// For a fresh read, call embed.Session.Sync and pass its zxid to View.Await. A zxid that another
// process tells needs no Sync: Await alone makes the view as new as that.
//
// # Gaps
//
// This node does not know all changes if it was away for so long that it got the state of another
// member. A client does not know those during a break of its connection. Nobody is told of what it
// may not read, so each SetACL that changes what the session may read in the subtree is a gap. And a
// watch has a bound: a view takes in some 32,000 changes, or 32 MiB of data, that come faster than it
// decodes. After any of these it reads everything again and compares. It tries that as long as the
// session lasts. What differs are changes with Change.Repaired, in which values in between are
// missing. The view itself goes on.
//
// A slow loop over Changes has bounds too: Options.History, and 32 MiB. Beyond them, the loop gets
// a *embed.GapError and reads All again. ExampleView_Changes is the whole loop.
//
// # How it works
//
// Open arms a recursive watch with values, then walks the subtree at one zxid, and then applies the
// events later than that. One goroutine for each view does this, and calls Decode. No call of a user
// holds up the node or a reader of the view. If Decode is slow, the view lags.
//
// The entries are in a sorted table that does not change. A transaction makes the next table, which
// shares all blocks of 64 to 128 entries that the transaction does not touch. So Get, All and Zxid
// need no lock.
//
// # What it costs
//
// One session should have one view of a subtree, which all share. With 100,000 znodes of a few bytes
// the benchmarks of this package, on two cores that were busy with other work, used this much CPU:
//
//   - Open: 0.2 s, 2 µs for each znode.
//   - Get of a random entry: 0.75 to 1.5 µs, a fifth of what embed.Session.Get took beside it.
//   - Memory: 225 bytes for each entry with its path, besides what Decode makes.
//   - A transaction gives one event for each of its writes. Taking it in copies at most 3 KiB,
//     once for all changes of a block that come together, and 8 bytes for each block.
//   - A gap, and so a SetACL that hides or shows a znode: as much as Open, besides Decode.
//
// A view at rest has a goroutine and 1.5 MiB of room for events. It reads past what Keep leaves
// out when it opens, and past the events of all that Keep and Depth leave out. So a narrow view of
// a subtree that changes often is not cheap.
package view
