package partition_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/partition"
	"github.com/vivarium-go/vivarium/internal/testkit"
)

// Thousands of parts: all have an owner, one more member moves its share, and a member that dies is
// replaced.
func TestRun_ThousandsOfParts(t *testing.T) {
	bubble(t, 3, func(t *testing.T, f *field) {
		n := 1000
		if testkit.Night() {
			n = 5000
		}
		parts := numbered("tenant-", n)
		before := testkit.Heap()
		for i, id := range []string{"a", "b"} {
			f.run(embed.MemberID(i+1), id, parts, partition.Options{})
		}
		owners := f.until(parts, "a", "b")
		// Three replicas, two views, and the goroutines of all parts are in this process. What it is
		// depends on when memory was last collected; a cost that grows with the parts shows all the same.
		each := (testkit.Heap() - before) / int64(n)
		t.Logf("%d bytes for each part", each)
		if each > 60_000 {
			t.Errorf("%d bytes for each part", each)
		}
		begun, calls := time.Now(), f.began()
		f.run(3, "c", parts, partition.Options{})
		after := f.until(parts, "a", "b", "c")
		t.Logf("a third member moved %d parts in %v", moved(owners, after), time.Since(begun))
		if got := f.began() - calls; got > n/3+n/20 {
			t.Errorf("a third member moved %d parts", got)
		}
		begun = time.Now()
		f.ens.Kill(3)
		f.until(parts, "a", "b")
		t.Logf("its loss took %v", time.Since(begun))
		s := f.ens.Session(1, embed.SessionOptions{})
		listed, err := partition.Owners(t.Context(), s, dir)
		if len(listed) != n || err != nil {
			t.Error(fmt.Sprint(len(listed)), err)
		}
	})
}
