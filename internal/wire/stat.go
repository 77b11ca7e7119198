package wire

// Stat describes a znode, without its data.
type Stat struct {
	Czxid          int64
	Mzxid          int64
	Ctime          int64 // milliseconds since 1970
	Mtime          int64
	Version        int32
	Cversion       int32
	Aversion       int32
	EphemeralOwner int64
	DataLength     int32
	NumChildren    int32
	Pzxid          int64
}

func (s *Stat) record(c *coder) {
	c.i64(&s.Czxid)
	c.i64(&s.Mzxid)
	c.i64(&s.Ctime)
	c.i64(&s.Mtime)
	i32(c, &s.Version)
	i32(c, &s.Cversion)
	i32(c, &s.Aversion)
	c.i64(&s.EphemeralOwner)
	i32(c, &s.DataLength)
	i32(c, &s.NumChildren)
	c.i64(&s.Pzxid)
}
