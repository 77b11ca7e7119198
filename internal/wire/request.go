package wire

// A Request is what a client asks for. Of its fields those count that its Op has.
type Request struct {
	Xid       int32
	Operation // all ops that have no field of their own below

	Ops      []Operation // multi, multiRead
	Auth     Auth        // auth
	Watches  Watches     // setWatches, setWatches2
	Reconfig Reconfig    // reconfig
}

// Auth is an identity's proof.
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

// DecodeHeader begins to read a request: Xid and Op, all else is zero. It returns what DecodeBody is to read.
func (r *Request) DecodeHeader(frame []byte) (body []byte, err error) {
	*r = Request{}
	c := coder{b: frame}
	r.header(&c)
	return c.b, c.err
}

// DecodeBody reads the rest of a request, by its Op. The data and proofs that it has read lie in body. After an error only Xid and Op
// mean something.
func (r *Request) DecodeBody(body []byte) error {
	c := coder{b: body}
	r.body(&c)
	return c.err
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
	default:
		r.Operation.record(c)
	}
}

// multi visits the operations, each behind a header, and the header that ends them. ZooKeeper looks at some rules while it decodes, and
// answers a breach as it does bytes that are no record; so they are here.
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
			c.fail("operation %d of a multi", i)
		}
	}
}

// A multiHeader stands before each operation of a multi and each of its results, and after the last.
type multiHeader struct {
	op   Op
	done bool // the last; nothing else of it counts then
	err  Code // -1 in a request, where it is ignored
}

var multiEnd = multiHeader{op: OpError, done: true, err: -1}

func (h *multiHeader) record(c *coder) {
	i32(c, &h.op)
	c.flag(&h.done)
	i32(c, &h.err)
}

// An Operation is what is asked for at one path. Of its fields those count that its Op has.
type Operation struct {
	Op      Op
	Flags   CreateFlags // all creates
	Version int32       // delete, setData, setACL (the ACL's), check; -1: any
	Mode    WatchMode   // addWatch
	Kind    WatchKind   // checkWatches, removeWatches
	Watch   bool        // exists, getData, getChildren, getChildren2
	Path    string      // all; in getEphemerals what paths begin with; may be Null
	Data    []byte      // all creates, setData; in sasl the token
	ACL     []ACL       // all creates, setACL
	TTL     int64       // createTTL; milliseconds
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
		c.fail("no record of op %d", o.Op)
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
	case OpCreateTTL: // its flags and its ttl are an error of the operation
		return in == OpMulti && o.ACL != nil
	case OpDelete, OpSetData, OpCheck:
		return in == OpMulti
	}
	return false
}
