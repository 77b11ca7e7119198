// Package wire is ZooKeeper's client protocol as bytes: frames, records and numbers. Servers and clients of it use it: embed/gateway, cmd/vivarium.
//
// It knows what the bytes say, not what they mean: it imports nothing of this module, starts no goroutine, and reads and writes
// nothing but what it is given. Decoding never panics, believes no length or count before the bytes are there, and takes some
// tens of bytes of memory for one of the frame at most, when that is packed with the smallest of records.
//
// # Frames
//
// All numbers are big-endian.
//
//	frame            length int32 | that many bytes, which are one of:
//	connect request  ConnectRequest                   the first of a connection, unless that begins with a FourLetterWord
//	connect answer   ConnectResponse                  its answer
//	request          xid int32, op int32              | the op's record
//	reply            xid int32, zxid int64, err int32 | the op's record, if err is 0
//	event            as a reply, xid XidEvent         | Event
//
// ReadFrame reads one. The AppendFrame methods append a whole frame, so that a Write can send several. A server does
//
//	var q wire.Request
//	body, err := q.DecodeHeader(frame) // on an error ZooKeeper closes the connection
//	...                                // if not q.Op.Known(): Unimplemented, then it closes
//	err = q.DecodeBody(body)           // on an error: MarshallingError, and the connection stays
//	...
//	out = reply.AppendFrame(out)
//
// # Records
//
// Each record's layout is written once, as a method that visits the fields in their order with a coder, which reads or writes
// them. So what is written here can be read here, and a field is never in one direction only.
//
//   - A list or buffer may be null, which is not the same as empty: null is nil. A string may be null: Null.
//   - Bytes after a complete record are ignored, as ZooKeeper does.
//   - A boolean is true for every byte but 0, a count below -1 is that of an empty list, a run of what is not UTF-8 is read as U+FFFD. A
//     length below -1 or beyond the frame is an error.
//   - Characters above U+FFFF are written as the UTF-8 they are. ZooKeeper's server writes their two surrogates, three bytes each,
//     which is not UTF-8 and is lost on whoever reads it as such. No path has such a character, but an ACL's id can.
//
// Read jute.go first, then frame.go, request.go and reply.go.
package wire
