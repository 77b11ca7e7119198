package wire

// A ConnectRequest is a client's first frame. It opens a session, or reattaches the one it names.
type ConnectRequest struct {
	Protocol  int32 // ignored by servers
	LastZxid  int64 // the newest zxid that the client has seen
	Timeout   int32 // milliseconds
	SessionID int64 // 0 asks for a new session
	Password  []byte
	ReadOnly  bool // a member without a quorum is good enough

	Old bool // of a client before 3.4, which neither sends nor accepts ReadOnly
}

func (r *ConnectRequest) record(c *coder) {
	i32(c, &r.Protocol)
	c.i64(&r.LastZxid)
	i32(c, &r.Timeout)
	c.i64(&r.SessionID)
	c.bytes(&r.Password)
	readOnly(c, &r.ReadOnly, &r.Old)
}

// Decode reads the record in a frame. Password then shares the frame's memory.
func (r *ConnectRequest) Decode(frame []byte) error {
	c := coder{b: frame}
	r.record(&c)
	return c.err
}

// AppendFrame appends the frame to b.
func (r *ConnectRequest) AppendFrame(b []byte) []byte {
	c := beginFrame(b)
	r.record(&c)
	return c.endFrame(len(b))
}

// A ConnectResponse is a server's first frame. If all its fields are zero, the session has expired
// or the password is wrong. The zero password has 16 bytes too.
type ConnectResponse struct {
	Protocol  int32 // always 0
	Timeout   int32 // milliseconds
	SessionID int64
	Password  []byte // 16 bytes
	ReadOnly  bool   // this member has no quorum

	Old bool // as in the request
}

func (r *ConnectResponse) record(c *coder) {
	i32(c, &r.Protocol)
	i32(c, &r.Timeout)
	c.i64(&r.SessionID)
	c.bytes(&r.Password)
	readOnly(c, &r.ReadOnly, &r.Old)
}

// Decode reads the record in a frame. Password then shares the frame's memory.
func (r *ConnectResponse) Decode(frame []byte) error {
	c := coder{b: frame}
	r.record(&c)
	return c.err
}

// AppendFrame appends the frame to b.
func (r *ConnectResponse) AppendFrame(b []byte) []byte {
	c := beginFrame(b)
	r.record(&c)
	return c.endFrame(len(b))
}

// readOnly visits the field that old clients do not have.
func readOnly(c *coder, v, old *bool) {
	if !c.writing {
		*v, *old = false, c.err == nil && len(c.b) == 0
	}
	if !*old {
		c.flag(v)
	}
}
