package promisetest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/internal/embedkit"
	"github.com/vivarium-go/vivarium/engine"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/tree"
)

// The client of a member that dies attaches to another member, and later returns. Its session, and
// what it owns on every shard, exists all the time. The session of a client that attaches nowhere
// ends.
func TestRemoteSession_OutlivesItsMember(t *testing.T) {
	t.Parallel()
	for _, shards := range []int{1, 4} {
		t.Run(fmt.Sprint("shards=", shards), func(t *testing.T) {
			t.Parallel()
			testkit.Bubble(t, func(t *testing.T) {
				// Its member's end and an election lie between two attachments.
				const timeout = 2 * embedkit.LivesAWhile
				ens := embedtest.New(t, 3, embedtest.Options{Config: func(c *embed.Config) { c.Shards = shards }})
				at := func(id embed.MemberID) *engine.Engine { return embedkit.EngineOf(ens.Node(id)) }
				ctx := bounded(t)
				open := func() *engine.Session {
					s, err := at(1).OpenRemote(ctx, timeout)
					if err != nil {
						t.Fatal(err)
					}
					return s
				}
				own := func(s *engine.Session, name string) (paths []string) {
					for i := range 8 { // probably on all shards
						path := fmt.Sprintf("/%s%d", name, i)
						if _, err := s.Submit(ctx, []tree.Op{{Kind: tree.KindCreate, Path: path, Mode: tree.Ephemeral}}).Wait(ctx); err != nil {
							t.Fatal(err)
						}
						paths = append(paths, path)
					}
					return paths
				}
				s, lost := open(), open()
				talk := func() (end func()) { // the client is never silent
					talking, end := context.WithCancel(ctx)
					go embedkit.Every(talking, timeout/20, s.Heard)
					return end
				}
				quiet := talk()
				kept, gone := own(s, "kept"), own(lost, "gone")
				look := ens.Session(3, embed.SessionOptions{})
				there := func(path string) bool {
					_, ok, err := look.Exists(ctx, path)
					if err != nil {
						t.Fatal(err)
					}
					return ok
				}
				for round, to := range []embed.MemberID{2, 1} {
					from := 3 - to
					ens.Kill(from)
					if err := s.Err(); !errors.Is(err, engine.ErrFailed) {
						t.Fatalf("its member died, it ended with %v", err)
					}
					next, err := at(to).Reattach(ctx, s.ID(), s.Password(), timeout)
					if err != nil {
						t.Fatal(err)
					}
					quiet()
					s = next
					quiet = talk()
					kept = append(kept, own(s, fmt.Sprint("round", round, "-"))...)
					ens.Start(from)
					ens.Ready(from)
				}
				ens.Until("the session of the client that is gone ends", func() bool {
					for _, path := range gone {
						if there(path) {
							return false
						}
					}
					return true
				})
				if err := s.Err(); err != nil {
					t.Fatal(err)
				}
				for _, path := range kept {
					if !there(path) {
						t.Errorf("%s is gone", path)
					}
				}
				if _, err := at(3).Reattach(ctx, lost.ID(), lost.Password(), timeout); err != engine.ErrSessionExpired {
					t.Errorf("reattached: %v", err)
				}
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				ens.Until("what it owned goes", func() bool {
					for _, path := range kept {
						if there(path) {
							return false
						}
					}
					return true
				})
			})
		})
	}
}
