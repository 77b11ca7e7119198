package wire

// A Request is what a client sends after its connect request. Only the fields that belong to its Op
// count.
type Request struct {
	Xid       int32
	Operation // all ops without a field of their own below

	Ops      []Operation // multi, multiRead
	Auth     Auth        // auth
	Watches  Watches     // setWatches, setWatches2
	Reconfig Reconfig    // reconfig
	Native   Native      // native
}

// Auth is a credential.
type Auth struct {
	Type   int32 // ignored by servers
	Scheme string
	Proof  []byte
}

// Reconfig is a change of the members. The strings may be Null.
type Reconfig struct {
	Joining  string
	Leaving  string
	Members  string
	ConfigID int64
}

// DecodeHeader reads Xid and Op, and zeroes everything else. It returns the rest of the frame, for
// DecodeBody.
func (r *Request) DecodeHeader(frame []byte) (body []byte, err error) {
	*r = Request{}
	c := coder{b: frame}
	r.header(&c)
	return c.b, c.err
}

// DecodeBody reads the rest of a request of its Op. The data and credentials that it reads share
// body's memory. After an error, only Xid and Op are valid.
func (r *Request) DecodeBody(body []byte) error {
	c := coder{b: body}
	r.body(&c)
	return c.err
}

// What the elements of lists take, as laid out on 64 bits.
const (
	textBytes      = 16
	aclBytes       = 40
	operationBytes = 96
	nativeOpBytes  = 128
)

// Weight returns about how many bytes a request takes that was decoded, beside its frame. A short
// frame can make much more than its own length.
func (r *Request) Weight() int {
	n := r.Operation.weight() + operationBytes*cap(r.Ops) + len(r.Auth.Scheme) + weigh(r.Watches.Data, r.Watches.Exist,
		r.Watches.Child, r.Watches.Persistent, r.Watches.Recursive, r.Native.Names)
	n += len(r.Reconfig.Joining) + len(r.Reconfig.Leaving) + len(r.Reconfig.Members)
	for i := range r.Ops {
		n += r.Ops[i].weight()
	}
	n += len(r.Native.Path) + len(r.Native.After) + nativeOpBytes*cap(r.Native.Ops)
	for i := range r.Native.Ops {
		n += len(r.Native.Ops[i].Path) + weighACL(r.Native.Ops[i].ACL)
	}
	return n
}

func (o *Operation) weight() int { return len(o.Path) + weighACL(o.ACL) }

func weighACL(list []ACL) int {
	n := aclBytes * cap(list)
	for i := range list {
		n += len(list[i].Scheme) + len(list[i].ID)
	}
	return n
}

func weigh(lists ...[]string) (n int) {
	for _, list := range lists {
		n += textBytes * cap(list)
		for _, text := range list {
			n += len(text)
		}
	}
	return n
}

// AppendFrame appends the request's frame to b.
func (r *Request) AppendFrame(b []byte) []byte {
	c := beginFrame(b)
	r.header(&c)
	r.body(&c)
	return c.endFrame(len(b))
}

func (r *Request) header(c *coder) {
	i32(c, &r.Xid)
	i32(c, &r.Op)
}

func (r *Request) body(c *coder) {
	switch r.Op {
	case OpPing, OpWhoAmI, OpCloseSession:
	case OpMulti, OpMultiRead:
		r.multi(c)
	case OpAuth:
		i32(c, &r.Auth.Type)
		c.text(&r.Auth.Scheme)
		c.bytes(&r.Auth.Proof)
	case OpSASL:
		c.bytes(&r.Data)
	case OpSetWatches, OpSetWatches2:
		r.Watches.record(c, r.Op)
	case OpReconfig:
		c.text(&r.Reconfig.Joining)
		c.text(&r.Reconfig.Leaving)
		c.text(&r.Reconfig.Members)
		c.i64(&r.Reconfig.ConfigID)
	case OpNative:
		r.Native.record(c)
	default:
		r.Operation.record(c)
	}
}

// multi visits the operations, each behind a header, and the header that ends them. It checks some
// rules that ZooKeeper checks while it decodes: a breach gets the same answer as a malformed
// record.
func (r *Request) multi(c *coder) {
	for i := 0; ; i++ {
		h := multiEnd
		if i < len(r.Ops) { // while writing
			h = multiHeader{op: r.Ops[i].Op, err: -1}
		}
		h.record(c)
		if h.done || c.err != nil {
			return
		}
		if !c.writing {
			r.Ops = append(r.Ops, Operation{Op: h.op})
		}
		o := &r.Ops[i]
		o.record(c)
		if !c.writing && c.err == nil && !o.allowed(r.Op) {
			c.fail("operation %d may not stand in this multi", i)
		}
	}
}

// A multiHeader stands before each operation of a multi, before each of its results, and at the
// end.
type multiHeader struct {
	op   Op
	done bool // this is the end; the other fields mean nothing
	err  Code // -1 in a request, and ignored there
}

var multiEnd = multiHeader{op: OpError, done: true, err: -1}

func (h *multiHeader) record(c *coder) {
	i32(c, &h.op)
	c.flag(&h.done)
	i32(c, &h.err)
}

// An Operation is a request about one path. Only the fields that belong to its Op count.
type Operation struct {
	Op      Op
	Flags   CreateFlags // all creates
	Version int32       // delete, setData, check, and the ACL's in setACL; -1 is any
	Mode    WatchMode   // addWatch
	Kind    WatchKind   // checkWatches, removeWatches
	Watch   bool        // exists, getData, getChildren, getChildren2
	Path    string      // all; a prefix of paths in getEphemerals; may be Null
	Data    []byte      // all creates, setData; the token in sasl
	ACL     []ACL       // all creates, setACL
	TTL     int64       // createTTL, in milliseconds
}

func (o *Operation) record(c *coder) {
	switch o.Op {
	case OpCreate, OpCreate2, OpCreateContainer, OpCreateTTL:
		c.text(&o.Path)
		c.bytes(&o.Data)
		c.acl(&o.ACL)
		i32(c, &o.Flags)
		if o.Op == OpCreateTTL {
			c.i64(&o.TTL)
		}
	case OpDelete, OpCheck:
		c.text(&o.Path)
		i32(c, &o.Version)
	case OpSetData:
		c.text(&o.Path)
		c.bytes(&o.Data)
		i32(c, &o.Version)
	case OpSetACL:
		c.text(&o.Path)
		c.acl(&o.ACL)
		i32(c, &o.Version)
	case OpExists, OpGetData, OpGetChildren, OpGetChildren2:
		c.text(&o.Path)
		c.flag(&o.Watch)
	case OpGetACL, OpSync, OpDeleteContainer, OpGetEphemerals, OpGetAllChildrenNumber:
		c.text(&o.Path)
	case OpCheckWatches, OpRemoveWatches:
		c.text(&o.Path)
		i32(c, &o.Kind)
	case OpAddWatch:
		c.text(&o.Path)
		i32(c, &o.Mode)
	default:
		c.fail("op %d has no record", o.Op)
	}
}

// allowed reports whether the operation may stand in a multi or a multiRead.
func (o *Operation) allowed(in Op) bool {
	if o.Path == Null {
		return false
	}
	switch o.Op {
	case OpGetData, OpGetChildren:
		return in == OpMultiRead
	case OpCreate, OpCreate2, OpCreateContainer:
		return in == OpMulti && o.ACL != nil && FlagsPersistent <= o.Flags && o.Flags <= FlagsContainer
	case OpCreateTTL: // wrong flags or a wrong TTL are an error of the operation
		return in == OpMulti && o.ACL != nil
	case OpDelete, OpSetData, OpCheck:
		return in == OpMulti
	}
	return false
}
