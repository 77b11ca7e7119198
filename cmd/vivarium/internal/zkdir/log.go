package zkdir

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/adler32"

	"github.com/vivarium-go/vivarium/tree"
)

const (
	logMagic      = "ZKLG"
	formatVersion = 2
	logHead       = 16 // magic, version, database
	recordHead    = 12 // sum, length
	recordEnd     = 'B'
)

// A txn is one transaction of the log.
type txn struct {
	session tree.SessionID
	zxid    tree.Zxid
	time    int64 // Unix ms
	kind    int32
	changes []change

	digested bool // by 3.6 and later
	digest   uint64
}

// eachTxn calls do with every transaction of a log file. It returns whether the last record is cut.
func eachTxn(file []byte, do func(*txn) error) (cut bool, err error) {
	d := decoder{left: file}
	magic, version := string(d.take(4)), d.int32()
	d.int64() // the database, which nobody sets
	if d.err != nil || magic != logMagic || version != formatVersion {
		return false, fmt.Errorf("it does not begin as a log of version %d does", formatVersion)
	}
	at := logHead
	for at < len(file) {
		value, ok, err := record(file[at:])
		if err != nil {
			return false, fmt.Errorf("byte %d: %w", at, err)
		}
		if !ok {
			return checkEnd(file, at)
		}
		x, err := parseTxn(value)
		if err == nil {
			err = do(x)
		}
		if err != nil {
			return false, fmt.Errorf("byte %d: %w", at, err)
		}
		at += recordHead + len(value) + 1
	}
	return false, nil
}

// record returns the value of the record at the beginning of b. ok is false if none is whole there.
func record(b []byte) (value []byte, ok bool, err error) {
	if len(b) < recordHead+1 {
		return nil, false, nil
	}
	sum, n := binary.BigEndian.Uint64(b), int32(binary.BigEndian.Uint32(b[8:]))
	if n <= 0 || int(n) > len(b)-recordHead-1 {
		return nil, false, nil
	}
	value = b[recordHead : recordHead+n]
	switch end := b[recordHead+n]; {
	case end == 0: // as where a record is cut
		return nil, false, nil
	case end != recordEnd:
		return nil, false, errors.New("a wrong end mark")
	case sum != uint64(adler32.Checksum(value)):
		return nil, false, errors.New("a wrong checksum")
	}
	return value, true, nil
}

// checkEnd checks that a log ends at a place without a whole record, and reports whether a record is
// cut there. Zeros follow it, because files grow before they are written. Anything else is damage,
// and that record or records behind it would be lost.
func checkEnd(file []byte, at int) (cut bool, err error) {
	last := len(file)
	for last > at && file[last-1] == 0 {
		last--
	}
	end := at + recordHead
	if last > end {
		end += max(0, int(int32(binary.BigEndian.Uint32(file[at+8:])))) + 1
	}
	if last > end {
		return false, fmt.Errorf("byte %d: neither a record nor the end", at)
	}
	if isWhole(file[at:last]) {
		return false, fmt.Errorf("byte %d: a wrong length", at)
	}
	for next := at + 1; next < last; next++ {
		if _, whole, _ := record(file[next:]); whole {
			return false, fmt.Errorf("byte %d: no record, but one follows at byte %d", at, next)
		}
	}
	return last > at, nil
}

// isWhole reports whether b begins with a record that is whole, whatever length it claims.
func isWhole(b []byte) bool {
	if len(b) < recordHead {
		return false
	}
	sum, left, found := binary.BigEndian.Uint64(b), b[recordHead:], adler32.New()
	for {
		end := bytes.IndexByte(left, recordEnd)
		if end < 0 {
			return false
		}
		found.Write(left[:end])
		if uint64(found.Sum32()) == sum {
			return true
		}
		found.Write(left[end : end+1])
		left = left[end+1:]
	}
}

// parseTxn reads the value of a record.
func parseTxn(value []byte) (*txn, error) {
	d := decoder{left: value}
	x := &txn{session: tree.SessionID(d.int64())}
	d.int32() // the client's number
	x.zxid, x.time, x.kind = tree.Zxid(d.int64()), d.int64(), d.int32()
	if err := x.body(&d); err != nil {
		return nil, fmt.Errorf("transaction %#x of type %d: %w", uint64(x.zxid), x.kind, err)
	}
	return x, nil
}

// digestLen is the length of a digest's version and the digest. digestVersion is the version that
// this package can calculate, which is that of 3.6 to 3.9.
const (
	digestLen     = 12
	digestVersion = 2
)

func (x *txn) body(d *decoder) error {
	switch x.kind {
	case opMulti:
		x.multi(d)
	case opCloseSession:
		// The znodes that it deleted, from 3.6 on. No vector is a digest: that begins with its version,
		// and two paths take more bytes.
		if len(d.left) > 0 && (len(d.left) != digestLen || binary.BigEndian.Uint32(d.left) != digestVersion) {
			for _, path := range d.strings() {
				x.changes = append(x.changes, change{kind: opDelete, path: path})
			}
		}
	case opCreateSession, opError:
		d.int32() // a timeout, an error
	default:
		c, err := parseChange(x.kind, d, x.session)
		if err != nil {
			return err
		}
		x.changes = append(x.changes, c)
	}
	if d.err == nil && len(d.left) == digestLen {
		x.digested = d.int32() == digestVersion
		x.digest = uint64(d.int64())
	}
	if d.err == nil && len(d.left) > 0 {
		return fmt.Errorf("%d bytes too many", len(d.left))
	}
	return d.err
}

// multi reads the parts of a transaction. If one is an error, the transaction changed nothing.
func (x *txn) multi(d *decoder) {
	failed := false
	for range d.count(8) {
		kind := d.int32()
		part := decoder{left: d.buffer()}
		if kind == opError {
			failed = true
			continue
		}
		c, err := parseChange(kind, &part, x.session)
		if err == nil && part.err == nil && len(part.left) > 0 {
			err = fmt.Errorf("a part has %d bytes too many", len(part.left))
		}
		if err = errors.Join(err, part.err); err != nil && d.err == nil {
			d.err = err
		}
		x.changes = append(x.changes, c)
	}
	if failed {
		x.changes = nil
	}
}

// parseChange reads one change. An error of the decoder stays there.
func parseChange(kind int32, d *decoder, session tree.SessionID) (change, error) {
	c := change{kind: kind, path: d.string()}
	switch kind {
	case opCreate, opCreate2:
		c.kind, c.data, c.acl = opCreate, d.buffer(), d.acl()
		if d.bool() {
			c.owner = session
		}
		c.created = -1
		if len(d.left) != 0 && len(d.left) != digestLen { // the first versions of 3.4 wrote none
			c.created = d.int32()
		}
	case opCreateContainer:
		c.kind, c.data, c.acl, c.created = opCreate, d.buffer(), d.acl(), d.int32()
		c.container = true
	case opCreateTTL:
		c.kind, c.data, c.acl, c.created = opCreate, d.buffer(), d.acl(), d.int32()
		c.ttl = d.int64() & ttlBits
	case opDelete, opDeleteContainer:
		c.kind = opDelete
	case opSetData, opReconfig:
		c.kind, c.data, c.version = opSetData, d.buffer(), d.int32()
	case opSetACL:
		c.acl, c.version = d.acl(), d.int32()
	case opCheck:
		d.int32()
	default:
		return c, errors.New("it is of a type that ZooKeeper 3.9 does not have")
	}
	return c, nil
}
