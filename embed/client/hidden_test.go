package client_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/lock"
)

// A contender ahead becomes unreadable while a client waits behind it, and leaves. The client is not
// told, and looks again.
func TestLock_BehindAContenderThatIsHiddenLater(t *testing.T) {
	for _, remote := range []bool{false, true} {
		virtually(t, func(w *world) {
			t := w.t
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
			defer cancel()
			s := w.ens.Session(1, embed.SessionOptions{})
			if remote {
				s = w.session(embed.SessionOptions{})
			}
			owner := w.ens.Session(1, embed.SessionOptions{Auth: []embed.Auth{{Scheme: "digest", Credential: []byte("boss:secret")}}})
			_, err := owner.Create(ctx, "/lock", nil, embed.Container)
			must(t, err)
			hold, err := lock.NewMutex(owner, "/lock").Lock(ctx)
			must(t, err)
			granted := make(chan error, 1)
			go func() {
				_, err := lock.NewMutex(s, "/lock").Lock(ctx)
				granted <- err
			}()
			<-time.After(time.Second)
			holders, err := lock.Holders(ctx, owner, "/lock")
			must(t, err)
			_, err = owner.SetACL(ctx, holders[0].Path, embed.CreatorACL(), embed.AnyVersion)
			must(t, err)
			<-time.After(time.Second)
			must(t, hold.Release())
			synctest.Wait()
			select {
			case err := <-granted:
				must(t, err)
			case <-time.After(5 * time.Minute):
				t.Errorf("remote %v: the lock is free for five minutes, and its waiter still waits", remote)
			}
		})
	}
}
