package wire

// A Reply is a server's answer to a request, or an event.
type Reply struct {
	Xid    int32
	Zxid   int64
	Result // its Op is not on the wire: it is the request's, or OpEvent

	Results []Result    // multi, multiRead
	Users   []User      // whoAmI
	Event   Event       // event
	Native  NativeReply // native
}

// DecodeHeader reads Xid, Zxid and Err, and zeroes everything else. It returns the rest of the
// frame, for DecodeBody.
func (r *Reply) DecodeHeader(frame []byte) (body []byte, err error) {
	*r = Reply{}
	c := coder{b: frame}
	r.header(&c)
	return c.b, c.err
}

// DecodeBody reads the rest of a reply to a request of that Op, or of an event. The data that it
// reads share body's memory. After an error, only the fields that DecodeHeader has read are valid.
func (r *Reply) DecodeBody(op Op, body []byte) error {
	r.Op = op
	c := coder{b: body}
	r.body(&c)
	return c.err
}

// AppendFrame appends the reply's frame to b. If Err is set, the frame is only a header, except that
// the reply to sasl has its buffer. The reply to a failed multi has no Err.
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
		if r.Op == OpSASL && (c.writing || len(c.b) > 0) {
			c.bytes(&r.Data) // null; ZooKeeper sends it, and other servers need not
		}
		return
	}
	switch r.Op {
	case OpEvent:
		r.Event.record(c)
	case OpNativeEvent:
		r.Event.native(c)
	case OpMulti, OpMultiRead:
		r.multi(c)
	case OpWhoAmI:
		c.users(&r.Users)
	case OpNative:
		r.Native.record(c)
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
				c.fail("result %d of a multi has op %d", i, h.op)
			}
		}
		r.Results[i].record(c)
	}
}

// A Result is the answer to one operation. Only the fields that belong to its Op count. A nil list
// or buffer is null on the wire. ZooKeeper answers null only for data, so an empty list must not be
// nil.
type Result struct {
	// Op is OpError for all results of a multi if one failed, and for each failed result of a
	// multiRead.
	Op    Op
	Err   Code
	Count int32    // getAllChildrenNumber
	Path  string   // all creates, sync
	Data  []byte   // getData, reconfig; the token in sasl
	ACL   []ACL    // getACL
	Names []string // getChildren, getChildren2; paths in getEphemerals
	// Stat belongs to all creates except create, and to exists, getData, setData, getACL, setACL,
	// getChildren2 and reconfig.
	Stat Stat
}

// record visits the fields of the ops that have an answer. Other ops have none.
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
	case OpAddWatch, OpError: // always 0 in the reply to addWatch
		i32(c, &r.Err)
	}
}

// opInMulti returns the op that stands for the result in a multi.
func (r *Result) opInMulti() Op {
	if r.Op == OpCreateContainer || r.Op == OpCreateTTL {
		return OpCreate2
	}
	return r.Op
}

// inResults reports whether a multi may have results of this op.
func (o Op) inResults() bool {
	switch o {
	case OpCreate, OpCreate2, OpDelete, OpSetData, OpCheck, OpGetData, OpGetChildren, OpError:
		return true
	}
	return false
}
