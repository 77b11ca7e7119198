package task_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/internal/embedkit"
	"github.com/vivarium-go/vivarium/embed/task"
)

// A claim of the first of very many tasks costs as much as one of few. Clients of ZooKeeper read
// all names (kazoo#175), and more than fit into an answer cannot be read at all
// (Netflix/curator#76).
func TestClaim_OfVeryMany(t *testing.T) {
	if testing.Short() {
		t.Skip("it puts very many tasks")
	}
	ens := embedtest.New(t, 1, embedtest.Options{Config: embedkit.Patient})
	s := ens.Session(1, embed.SessionOptions{})
	q := task.New(s, path, task.Options{})
	put(t, q, "first", task.PutOptions{})
	const all, each = 100_000, 1000
	for range all / each {
		ops := make([]embed.Op, each)
		for i := range ops {
			ops[i] = embed.OpCreate(path+"/entries/entry-100-", fmt.Append(nil, i), embed.Sequential)
		}
		_, err := s.Multi(bounded(t), ops...)
		must(t, err)
	}
	begun := time.Now()
	const n = 50
	for range n {
		must(t, claim(t, q).Finish())
	}
	d := time.Since(begun)
	t.Logf("%v for a claim and a finish", d/n)
	if d > 30*time.Second {
		t.Errorf("%d claims took %v", n, d)
	}
}
