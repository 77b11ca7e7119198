package wire

const (
	// OpNative is a request of Vivarium's own client, package embed/client. It has what ZooKeeper's
	// protocol lacks. A ZooKeeper server answers it with Unimplemented.
	OpNative Op = 1000
	// OpNativeEvent is an event that may have the data and Stat of its znode. Three types of event are
	// not ZooKeeper's: watch.ReadLost, watch.ReadGained and watch.CreatedHidden.
	OpNativeEvent Op = 1001 // in events only, in no request
)

// XidNativeEvent is the xid of an OpNativeEvent.
const XidNativeEvent = -1000

// NativeKind says what an OpNative asks for.
type NativeKind int32

// The kinds.
const (
	// NativeHello is the first request of a connection. From then on the connection gets
	// OpNativeEvent in place of OpEvent. The answer has in Zxid how many bytes a znode's data may
	// have, and in Count how many a request may have.
	NativeHello   NativeKind = iota + 1
	NativeSubmit             // apply Ops as one transaction
	NativeRelease            // end an ephemeral of the session that a claim made: Path, Zxid (its creation), Flag (it was lost)
	// NativeArm watches Path in Mode. With Flag, events have values. The answer has Zxid, Flag (it
	// exists) and Stat, as of that moment.
	NativeArm
	NativePage   // up to Count names of the children of Path after After
	NativeBefore // the sibling of Path with the next lower number whose name contains one of Names
	// NativeWalk shows Path and what is below it as of one Zxid, down to depth Count, 0 for all. The
	// answer has a portion; Flag says that more may follow. The next request then has the Zxid, and
	// in After the last path. A failure has a Zxid too: of when the znode was missing, or hidden.
	NativeWalk
	NativeAwait  // wait until Zxid is shown for Path; Flag of the answer says that it is
	NativeSync   // a barrier for Path; the answer has Zxid
	NativeMember // the member that speaks for session Zxid; the answer has it in Zxid
)

// Native is the request of an OpNative. Only the fields that belong to its Kind count.
type Native struct {
	Kind  NativeKind
	Path  string
	After string
	Names []string
	Count int32
	Mode  int32
	Zxid  int64
	Flag  bool

	Ops []NativeOp // submit
}

func (n *Native) record(c *coder) {
	i32(c, &n.Kind)
	if n.Kind == NativeSubmit {
		list(c, &n.Ops, nativeOpLeast)
		for i := range n.Ops {
			n.Ops[i].record(c)
		}
		return
	}
	c.text(&n.Path)
	c.text(&n.After)
	c.texts(&n.Names)
	i32(c, &n.Count)
	i32(c, &n.Mode)
	c.i64(&n.Zxid)
	c.flag(&n.Flag)
}

// A NativeOp is one operation of a transaction, with the numbers of package tree.
type NativeOp struct {
	Kind    int32
	Path    string
	Data    []byte
	Mode    int32
	TTL     int64
	ACL     []ACL
	Version int32
	Czxid   int64
	Mzxid   int64
	Width   int32
	Delta   int64
}

const nativeOpLeast = 56 // bytes, with a null path

func (o *NativeOp) record(c *coder) {
	i32(c, &o.Kind)
	c.text(&o.Path)
	c.bytes(&o.Data)
	i32(c, &o.Mode)
	c.i64(&o.TTL)
	c.acl(&o.ACL)
	i32(c, &o.Version)
	c.i64(&o.Czxid)
	c.i64(&o.Mzxid)
	i32(c, &o.Width)
	c.i64(&o.Delta)
}

// NativeReply is the answer to an OpNative. The frame's own error code is OK: what went wrong is
// here.
type NativeReply struct {
	Kind NativeKind // of the request
	// Failure is zero if the request succeeded. Otherwise only Text, Index and Zxid count.
	Failure int32
	Text    string // what went wrong, for people
	Index   int32  // of the refused operation; -1 if it is about none

	Zxid    int64
	Flag    bool
	Count   int32
	Stat    Stat
	Names   []string
	Results []NativeResult // submit
	Znodes  []NativeZnode  // walk
}

func (r *NativeReply) record(c *coder) {
	i32(c, &r.Kind)
	i32(c, &r.Failure)
	if r.Failure != 0 {
		c.text(&r.Text)
		i32(c, &r.Index)
		c.i64(&r.Zxid)
		return
	}
	switch r.Kind {
	case NativeSubmit:
		list(c, &r.Results, nativeResultLeast)
		for i := range r.Results {
			r.Results[i].record(c)
		}
	case NativeArm:
		c.i64(&r.Zxid)
		c.flag(&r.Flag)
		r.Stat.record(c)
	case NativePage:
		c.texts(&r.Names)
	case NativeBefore:
		c.flag(&r.Flag)
		c.texts(&r.Names)
	case NativeWalk:
		c.i64(&r.Zxid)
		c.flag(&r.Flag)
		list(c, &r.Znodes, nativeZnodeLeast)
		for i := range r.Znodes {
			r.Znodes[i].record(c)
		}
	default:
		c.i64(&r.Zxid)
		c.flag(&r.Flag)
		i32(c, &r.Count)
	}
}

// A NativeResult is the outcome of one operation.
type NativeResult struct {
	Kind  int32
	Path  string
	Stat  Stat
	Value int64
}

const nativeResultLeast = 84

func (r *NativeResult) record(c *coder) {
	i32(c, &r.Kind)
	c.text(&r.Path)
	r.Stat.record(c)
	c.i64(&r.Value)
}

// A NativeZnode is one znode of a walk.
type NativeZnode struct {
	Path string
	Data []byte
	Stat Stat
}

const nativeZnodeLeast = 76

func (z *NativeZnode) record(c *coder) {
	c.text(&z.Path)
	c.bytes(&z.Data)
	z.Stat.record(c)
}
