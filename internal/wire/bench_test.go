package wire

import "testing"

// BenchmarkRead and BenchmarkWrite do what a server does for a getData of 128 bytes.
func BenchmarkRead(b *testing.B) {
	frame := ask(Operation{Op: OpGetData, Path: "/service/config/main", Watch: true}).AppendFrame(nil)[4:]
	b.ReportAllocs()
	for b.Loop() {
		var r Request
		body, err := r.DecodeHeader(frame)
		if err != nil {
			b.Fatal(err)
		}
		if err := r.DecodeBody(body); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkWrite(b *testing.B) {
	data := make([]byte, 128)
	var out []byte
	b.ReportAllocs()
	for b.Loop() {
		r := Reply{Xid: 7, Zxid: 9}
		r.Op, r.Data, r.Stat = OpGetData, data, stat
		out = r.AppendFrame(out[:0])
	}
}
