package tree

import (
	"fmt"
	"runtime"
	"testing"
)

// newTree returns a tree with n children named node-%010d under /dir, and the header of its newest
// transaction.
func newTree(tb testing.TB, n int) (*Tree, *Header) {
	l := NewLoader(nil)
	add := func(path string, z Znode) {
		if err := l.Add(path, z); err != nil {
			tb.Fatal(err)
		}
	}
	for _, path := range []string{"/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config", "/dir"} {
		z := initialZnode(path)
		if path == "/" {
			z.Created = 1
		}
		if path == "/dir" {
			z.Created = int32(n)
		}
		add(path, z)
	}
	for i := range n {
		add(fmt.Sprintf("/dir/node-%010d", i), Znode{Czxid: 1, Mzxid: 1, Pzxid: 1, Data: []byte("value")})
	}
	t, err := l.Finish(1)
	if err != nil {
		tb.Fatal(err)
	}
	// The measured code must not pay for garbage that loading left behind.
	runtime.GC()
	return t, &Header{Zxid: 1}
}

// must applies and publishes one transaction at the next zxid.
func (t *Tree) must(tb testing.TB, h *Header, ops ...Op) []Result {
	h.Zxid++
	results, err := t.Apply(*h, ops)
	if err != nil {
		tb.Fatal(err)
	}
	t.Publish()
	return results
}

func BenchmarkApply(b *testing.B) {
	data := make([]byte, 128)
	b.Run("op=set/size=128", func(b *testing.B) {
		t, h := newTree(b, 1)
		ops := []Op{{Kind: KindSet, Path: "/dir/node-0000000000", Data: data, Version: AnyVersion}}
		b.ReportAllocs()
		for b.Loop() {
			t.must(b, h, ops...)
			t.forgetDirty()
		}
	})
	b.Run("op=check", func(b *testing.B) {
		t, h := newTree(b, 1)
		ops := []Op{{Kind: KindCheck, Path: "/dir/node-0000000000", Version: AnyVersion}}
		b.ReportAllocs()
		for b.Loop() {
			t.must(b, h, ops...)
		}
	})
	for _, siblings := range []int{1, 1000, 1_000_000} {
		b.Run(fmt.Sprintf("op=create+delete/siblings=%d", siblings), func(b *testing.B) {
			t, h := newTree(b, siblings)
			create := []Op{{Kind: KindCreate, Path: "/dir/node-", Data: data, Mode: Sequential}}
			remove := []Op{{Kind: KindDelete, Version: AnyVersion}}
			b.ReportAllocs()
			for b.Loop() {
				remove[0].Path = t.must(b, h, create...)[0].Path
				t.must(b, h, remove...)
				t.forgetDirty()
			}
		})
	}
	b.Run("op=create", func(b *testing.B) {
		t, h := newTree(b, 0)
		create := []Op{{Kind: KindCreate, Path: "/dir/node-", Data: data, Mode: Sequential}}
		b.ReportAllocs()
		for b.Loop() {
			t.must(b, h, create...)
			t.forgetDirty()
		}
	})
	b.Run("op=multi/creates=5000", func(b *testing.B) {
		t, h := newTree(b, 0)
		var creates []Op
		for range 5000 {
			creates = append(creates, Op{Kind: KindCreate, Path: "/dir/node-", Data: data, Mode: Sequential})
		}
		b.ReportAllocs()
		for b.Loop() {
			t.must(b, h, creates...)
			t.forgetDirty()
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/5000, "ns/create")
	})
}

func BenchmarkGet(b *testing.B) {
	t, _ := newTree(b, 10_000)
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := t.Get("/dir/node-0000005000"); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkExists(b *testing.B) {
	t, _ := newTree(b, 10_000)
	b.ReportAllocs()
	for b.Loop() {
		t.Exists("/dir/node-0000005000")
	}
}

func BenchmarkChildren(b *testing.B) {
	t, _ := newTree(b, 10_000)
	b.ReportAllocs()
	for b.Loop() {
		if names, _, err := t.Children("/dir"); err != nil || len(names) != 10_000 {
			b.Fatal(err)
		}
	}
}

func BenchmarkBefore(b *testing.B) {
	t, _ := newTree(b, 10_000)
	b.ReportAllocs()
	for b.Loop() {
		if _, ok, _ := t.Before("/dir/node-0000005000", "node-"); !ok {
			b.Fatal("nobody before")
		}
	}
}

func BenchmarkLoad(b *testing.B) {
	for b.Loop() {
		newTree(b, 100_000)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/100_000, "ns/znode")
}
