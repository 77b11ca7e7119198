package embedkit

import (
	"errors"
	"slices"
	"testing"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/internal/testkit/sessionsflag"
	"github.com/vivarium-go/vivarium/internal/testkit/shardsflag"
)

// OnShard are paths; the n-th is on shard n of four. The shard of a name can never change.
var OnShard = []string{"/jobs", "/orders", "/stock", "/users"}

// Sharded starts an ensemble of three members with four shards.
func Sharded(t *testing.T) *embedtest.Ensemble {
	t.Helper()
	return embedtest.New(t, 3, embedtest.Options{Config: func(c *embed.Config) { c.Shards = len(OnShard) }})
}

// Places returns where a test writes: one child of the root for each shard. With one, two or four
// shards, the places are on the shards in order. With other numbers they are not.
func Places() []string {
	return slices.Clone(OnShard[:min(max(1, shardsflag.N), len(OnShard))])
}

// LastPlace is on a shard without sessions, if there are several shards.
func LastPlace() string { return Places()[len(Places())-1] }

// OfSessions is a znode that always exists, on the first shard. A write to it proves its node
// alive.
const OfSessions = "/zookeeper"

// WantCrossShard reports an error of the test unless err is ErrCrossShard.
func WantCrossShard(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, embed.ErrCrossShard) {
		t.Errorf("%s: %v", what, err)
	}
}

// MembersOnly skips a test of what only the session of a member promises.
func MembersOnly(t *testing.T, why string) {
	t.Helper()
	if sessionsflag.Open != nil {
		t.Skip(why)
	}
}
