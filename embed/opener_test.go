package embed_test

import (
	"errors"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/internal/testkit"
)

// Options of an Opener and of a call add up, and a call leaves neither its Opener's root nor the
// rules of paths.
func TestOpenerWith_AddsOptions(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ctx := bounded(t)
		ens := embedtest.New(t, 1, embedtest.Options{})
		user := func(name string) []embed.Auth {
			return []embed.Auth{{Scheme: "digest", Credential: []byte(name + ":x")}}
		}
		outer := embed.OpenerWith(ens.Node(1), embed.SessionOptions{Timeout: 20 * time.Second, Root: "/tenant", Auth: user("a")})
		plain, err := outer.NewSession(ctx, embed.SessionOptions{})
		must(t, err)
		inner, err := embed.OpenerWith(outer, embed.SessionOptions{Root: "/one", Auth: user("b")}).NewSession(ctx, embed.SessionOptions{Timeout: 30 * time.Second})
		must(t, err)
		if plain.Timeout() != 20*time.Second || plain.Root() != "/tenant" {
			t.Errorf("timeout %v, root %s", plain.Timeout(), plain.Root())
		}
		if inner.Timeout() != 30*time.Second || inner.Root() != "/tenant/one" {
			t.Errorf("timeout %v, root %s", inner.Timeout(), inner.Root())
		}
		_, _, err = inner.CreateWith(ctx, "/a", nil, embed.CreateOptions{ACL: embed.CreatorACL(), Parents: true})
		must(t, err)
		acl, _, err := inner.ACL(ctx, "/a")
		if len(acl) != 2 || err != nil {
			t.Errorf("the identities are %v, %v", acl, err)
		}
		for _, o := range []embed.SessionOptions{{Root: "one"}, {Root: "/one/"}, {Root: "/.."}} {
			if _, err := outer.NewSession(ctx, o); !errors.Is(err, embed.ErrInvalidPath) {
				t.Errorf("%q: %v", o.Root, err)
			}
		}
	})
}

// Config.SessionTimeout is that of every session that asks for none.
func TestSessionTimeout_IsTheDefault(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		for _, c := range []struct{ configured, most, asked, want time.Duration }{
			{0, 0, 0, embed.DefaultSessionTimeout},
			{0, 6 * time.Second, 0, 6 * time.Second},
			{5 * time.Second, 0, 0, 5 * time.Second},
			{5 * time.Second, 0, 7 * time.Second, 7 * time.Second},
		} {
			ens := embedtest.New(t, 1, embedtest.Options{Config: func(cfg *embed.Config) { cfg.SessionTimeout, cfg.MaxSessionTimeout = c.configured, c.most }})
			if got := ens.Session(1, embed.SessionOptions{Timeout: c.asked}).Timeout(); got != c.want {
				t.Errorf("%+v: %v", c, got)
			}
		}
		for _, bad := range []time.Duration{-1, time.Second, 2 * time.Minute} {
			if err := (embed.Config{Dir: "x", SessionTimeout: bad}).Validate(); err == nil {
				t.Errorf("%v is accepted", bad)
			}
		}
	})
}
