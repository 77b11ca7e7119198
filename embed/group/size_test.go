package group_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/group"
	"github.com/vivarium-go/vivarium/embed/internal/embedkit"
	"github.com/vivarium-go/vivarium/internal/testkit"
)

// 10,000 members join, one of them changes again and again, and all are lost at once. The bounds
// are far above what it takes.
func TestGroup_TenThousandMembers(t *testing.T) {
	if testing.Short() {
		t.Skip("it creates 10,000 znodes")
	}
	ens := embedtest.New(t, 1, embedtest.Options{Config: embedkit.Patient})
	s, other := ens.Session(1, embed.SessionOptions{}), ens.Session(1, embed.SessionOptions{})
	_, err := s.Create(t.Context(), dir, nil, embed.Persistent)
	must(t, err)
	g := watch(t, s, group.Options{})
	told := make(chan group.Change, 1)
	count := make(chan int)
	go func() {
		n := 0
		for c, err := range g.Changes(t.Context()) {
			if err != nil {
				break
			}
			n++
			select {
			case <-told: // only the newest
			default:
			}
			told <- c
		}
		count <- n
	}()
	until := func(n int) (c group.Change) {
		t.Helper()
		limit := time.After(testkit.Patience)
		for first := true; first || len(c.Members) != n; first = false {
			select {
			case c = <-told:
			case <-limit:
				t.Fatalf("there are %d members, not %d", len(c.Members), n)
			}
		}
		return c
	}
	const many, each = 10_000, 50
	begun := time.Now()
	for i := range many / each {
		var ops []embed.Op
		for j := range each {
			ops = append(ops, embed.OpCreate(fmt.Sprintf("%s/m%05d", dir, i*each+j), []byte("10.0.0.1:80"),
				embed.Ephemeral))
		}
		_, err := other.Multi(t.Context(), ops...)
		must(t, err)
	}
	until(many)
	joined := time.Since(begun)
	begun = time.Now()
	for range 100 {
		stat, err := other.Set(t.Context(), dir+"/m00007", nil, embed.AnyVersion)
		must(t, err)
		for c := until(many); c.Members[7].Mzxid != stat.Mzxid; c = until(many) {
			continue
		}
	}
	changed := time.Since(begun) / 100
	begun = time.Now()
	must(t, other.Close())
	until(0)
	lost := time.Since(begun)
	must(t, g.Close())
	t.Logf("joined in %v, told of a change in %v, lost in %v, %d changes", joined, changed, lost,
		<-count)
	if joined > 30*time.Second || changed > time.Second || lost > 30*time.Second {
		t.Error("that is too slow")
	}
}
