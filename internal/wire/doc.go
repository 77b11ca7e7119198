// Package wire encodes and decodes ZooKeeper's client protocol: frames, records and numbers.
// Servers and clients use it: embed/gateway and cmd/vivarium. It carries no compatibility promise.
//
// A server does this for each request:
//
//	var q wire.Request
//	body, err := q.DecodeHeader(frame) // on an error ZooKeeper closes the connection
//	...                                // if !q.Op.Known(): Unimplemented, then it closes
//	err = q.DecodeBody(body)           // on an error: MarshallingError, and the connection stays
//	...
//	out = reply.AppendFrame(out)
//
// The package knows what the bytes say, not what they mean. It imports nothing of this module,
// starts no goroutine, and touches only what it is given.
//
// Decoding never panics. It trusts no length or count before the bytes are there. In the worst
// case, a frame packed with the smallest records, it takes some tens of bytes of memory per byte of
// the frame.
//
// # Frames
//
// ReadFrame reads one frame. The AppendFrame methods append a whole frame, for a Write that sends
// several frames. All numbers are big-endian.
//
//	frame            length int32, then that many bytes, which are one of:
//	connect request  ConnectRequest                   the first of a connection, unless that
//	                                                  begins with a four-letter word
//	connect answer   ConnectResponse                  its answer
//	request          xid int32, op int32              | the op's record
//	reply            xid int32, zxid int64, err int32 | the op's record, if err is 0
//	event            as a reply, xid XidEvent         | Event
//
// # Records
//
// Each record's layout is written once: as a method that visits the fields in their order with a
// coder. The coder either reads or writes each field. So everything that can be written can be
// read, and no field is missing in one direction.
//
//   - A list or buffer may be null, which is not the same as empty: null is nil. A null string is
//     Null.
//   - Bytes after a complete record are ignored, as in ZooKeeper.
//   - Every byte except 0 is a true boolean. A count below -1 means an empty list. A run of
//     bytes that is not UTF-8 is read as U+FFFD. A length below -1 or beyond the frame is an error.
//   - Characters above U+FFFF are written in UTF-8. ZooKeeper's server writes their two surrogates
//     instead, three bytes each. That is not UTF-8, and a reader of UTF-8 loses the character. No
//     path has such a character, but an ACL's id can.
package wire
