package task_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/internal/clienttest"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/internal/testkit/membersflag"
	"github.com/vivarium-go/vivarium/internal/testkit/sessionsflag"
	"github.com/vivarium-go/vivarium/internal/testkit/shardsflag"
)

func init() {
	shardsflag.Define()
	sessionsflag.Define(clienttest.Over)
	membersflag.Define()
}

var (
	must    = testkit.Must
	bounded = testkit.Context
	wantErr = testkit.WantErr
)

const path = "/tasks/q"

// patience is a virtual time that no step of a test takes.
const patience = 24 * time.Hour

// bubble tests in virtual time, with an ensemble of so many members and a slow tick.
func bubble(t *testing.T, n int, test func(t *testing.T, ens *embedtest.Ensemble)) {
	synctest.Test(t, func(t *testing.T) {
		slow := func(c *embed.Config) { c.Tick = 100 * time.Millisecond }
		ens := embedtest.New(t, n, embedtest.Options{Config: slow})
		test(t, ens)
	})
}

// children returns the children of a znode, and nothing if it does not exist.
func children(t *testing.T, s *embed.Session, path string) []string {
	t.Helper()
	if _, ok, err := s.Exists(bounded(t), path); !ok {
		must(t, err)
		return nil
	}
	names, _, err := s.Children(bounded(t), path)
	must(t, err)
	return names
}

// synctestShards is bubble with one member and four shards.
func synctestShards(t *testing.T, test func(t *testing.T, ens *embedtest.Ensemble)) {
	synctest.Test(t, func(t *testing.T) {
		ens := embedtest.New(t, 1, embedtest.Options{Config: func(c *embed.Config) {
			c.Tick,
				c.Shards = 100*time.Millisecond, 4
		}})
		test(t, ens)
	})
}
