// Package value has what one znode holds: a typed value that all read and change, a number that all
// add to, ids, and worker numbers. Reads are local: they may be behind what another member has
// written, until embed.Session.Sync or Await. Ids are unique, but not in order between members, and
// some are never given out. A Counter whose Add has an unknown outcome counted at most once, and
// cannot tell.
//
//	flags := value.New(session, "/config/flags", value.JSON[Flags]())
//	_, err := flags.Set(ctx, Flags{Beta: true}) // creates it on first use
//	for now, err := range flags.Changes(ctx) {
//		...
//	}
//
//	jobs := value.NewCounter(session, "/jobs/done", embed.Int64)
//	n, err := jobs.Add(ctx, 1) // one commit, however many add
//
// Value.Changes is an iter.Seq2 of the present value and then of every other one; Bind keeps a
// pointer up to date instead. Numbers have no such sequence, because most of them change too often:
// Counter.Get is a local read. Whoever has a Number is told by Number.Context that it has ended.
//
// # What a write costs
//
// Each write is one commit, the first one too: it creates the znode, and the znodes above it as
// containers. The znode itself is persistent, so a container above it is never empty, and neither
// goes away by itself. If somebody deletes them, the next write creates them again. A deleted
// Counter begins again at zero, and so does a Sequence, which then gives out its ids once more.
//
// A value is written exactly once or not at all, except after embed.ErrUnknownOutcome. What may
// only replace what the caller has read goes through Swap or Update. Both compare the zxid of the
// last write, not a version: a version wraps around, and begins anew when a znode is deleted and
// created again.
//
// # Layouts
//
//	Value               the path             data by its Codec        Curator's SharedValue
//	Counter, Int64      the path             8 bytes, big-endian      DistributedAtomicLong
//	Counter, Int32      the path             4 bytes, big-endian      SharedCount, DistributedAtomicInteger
//	Counter, Text       the path             decimal digits           kazoo's Counter, whole numbers
//	Sequence            the path             8 bytes: the next id     CachedAtomicLong
//	Number              <dir>/held/<number>  empty, ephemeral         -
//	                    <dir>/used/<number>  decimal digits: the time in Unix milliseconds up to
//	                                         which the number may have been used
//
// Java and Python clients of the gateway may use the same znodes. They compare and set, so each of
// them starves on a Counter that others add to all the time.
//
// Start reading in value.go and counter.go; number.go is the only one with a protocol of its own.
package value
