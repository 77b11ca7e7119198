package embedtest_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/internal/testkit/membersflag"
)

// With -members churn voters beside those of the test leave and are wiped, and come back as others.
// Those of the test stay, and have a quorum though one of them is dead.
func TestChurn(t *testing.T) {
	seconds, id := 20, embed.MemberID(6)
	if testkit.Night() {
		seconds, id = 60, 9
	}
	before := membersflag.Churn
	membersflag.Churn = true
	defer func() { membersflag.Churn = before }()
	synctest.Test(t, func(t *testing.T) {
		e := embedtest.New(t, 3, embedtest.Options{})
		if got := e.Members(); len(got) != 3 || len(e.Places()) != 5 {
			t.Fatalf("members of the test are %v of %v", got, e.Places())
		}
		e.Kill(2)
		s := e.Session(1, embed.SessionOptions{})
		newest := embed.MemberID(0)
		for i := range seconds {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			if _, err := s.Create(ctx, fmt.Sprint("/", i), nil, embed.Persistent); err != nil {
				t.Fatal(err)
			}
			cancel()
			for _, m := range e.Node(1).Members() {
				newest = max(newest, m.ID)
			}
			<-time.After(time.Second)
		}
		if newest < id {
			t.Errorf("in %d s the newest member had the id %d", seconds, newest)
		}
	})
}
