package wire

// A Reply is a server's answer to a request, or an event.
type Reply struct {
	Xid    int32
	Zxid   int64
	Result // its Op is not on the wire: that of the request, or OpEvent

	Results []Result // multi, multiRead
	Users   []User   // whoAmI
	Event   Event    // event
}

// DecodeHeader begins to read a reply: Xid, Zxid and Err, all else is zero. It returns what DecodeBody is to read.
func (r *Reply) DecodeHeader(frame []byte) (body []byte, err error) {
	*r = Reply{}
	c := coder{b: frame}
	r.header(&c)
	return c.b, c.err
}

// DecodeBody reads the rest of a reply to a request of that Op, or of an event. The data it has read lie in body. After an error
// only what DecodeHeader has read means something.
func (r *Reply) DecodeBody(op Op, body []byte) error {
	r.Op = op
	c := coder{b: body}
	r.body(&c)
	return c.err
}

// AppendFrame appends the reply's frame to b. With an Err it is a header alone; the reply to a multi that failed has none.
func (r *Reply) AppendFrame(b []byte) []byte {
	c := beginFrame(b)
	r.header(&c)
	r.body(&c)
	return c.endFrame(len(b))
}

func (r *Reply) header(c *coder) {
	i32(c, &r.Xid)
	c.i64(&r.Zxid)
	i32(c, &r.Err)
}

func (r *Reply) body(c *coder) {
	if r.Err != OK {
		return
	}
	switch r.Op {
	case OpEvent:
		r.Event.record(c)
	case OpMulti, OpMultiRead:
		r.multi(c)
	case OpWhoAmI:
		c.users(&r.Users)
	default:
		r.Result.record(c)
	}
}

// multi visits the results, each behind a header, and the header that ends them.
func (r *Reply) multi(c *coder) {
	for i := 0; ; i++ {
		h := multiEnd
		if i < len(r.Results) { // while writing
			h = multiHeader{op: r.Results[i].opInMulti(), err: r.Results[i].Err}
		}
		h.record(c)
		if h.done || c.err != nil {
			return
		}
		if !c.writing {
			r.Results = append(r.Results, Result{Op: h.op})
			if !h.op.inResults() {
				c.fail("result %d of a multi is of op %d", i, h.op)
			}
		}
		r.Results[i].record(c)
	}
}

// A Result is what one operation answers. Of its fields those count that its Op has. nil is null here too, which ZooKeeper
// answers for data alone: a list that is empty has to be one that is not nil.
type Result struct {
	Op    Op // in multi OpError for all, if one of them failed, and in multiRead for each that failed
	Err   Code
	Count int32    // getAllChildrenNumber
	Path  string   // all creates, sync
	Data  []byte   // getData, reconfig; in sasl the token
	ACL   []ACL    // getACL
	Names []string // getChildren, getChildren2; in getEphemerals paths
	Stat  Stat     // all creates but create, exists, getData, setData, getACL, setACL, getChildren2, reconfig
}

// record visits what ops have an answer, the others have none.
func (r *Result) record(c *coder) {
	switch r.Op {
	case OpCreate, OpSync:
		c.text(&r.Path)
	case OpCreate2, OpCreateContainer, OpCreateTTL:
		c.text(&r.Path)
		r.Stat.record(c)
	case OpExists, OpSetData, OpSetACL:
		r.Stat.record(c)
	case OpGetData, OpReconfig:
		c.bytes(&r.Data)
		r.Stat.record(c)
	case OpGetACL:
		c.acl(&r.ACL)
		r.Stat.record(c)
	case OpGetChildren, OpGetEphemerals:
		c.texts(&r.Names)
	case OpGetChildren2:
		c.texts(&r.Names)
		r.Stat.record(c)
	case OpGetAllChildrenNumber:
		i32(c, &r.Count)
	case OpSASL:
		c.bytes(&r.Data)
	case OpAddWatch, OpError: // in addWatch's reply always 0
		i32(c, &r.Err)
	}
}

// opInMulti is the op under which a result stands in a multi.
func (r *Result) opInMulti() Op {
	if r.Op == OpCreateContainer || r.Op == OpCreateTTL {
		return OpCreate2
	}
	return r.Op
}

// inResults reports whether results in a multi are of it.
func (o Op) inResults() bool {
	switch o {
	case OpCreate, OpCreate2, OpDelete, OpSetData, OpCheck, OpGetData, OpGetChildren, OpError:
		return true
	}
	return false
}
