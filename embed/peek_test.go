package embed_test

import (
	"errors"
	"testing"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/internal/testkit"
)

// A member that starts without the others shows what it knew, before and without a quorum. It shows
// to each what the ACLs allow.
func TestPeek_WithoutAQuorum(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ctx := bounded(t)
		ens := embedtest.New(t, 3, embedtest.Options{})
		owner := embed.Auth{Scheme: "digest", Credential: []byte("owner:secret")}
		s := ens.Session(1, embed.SessionOptions{Auth: []embed.Auth{owner}})
		_, err := s.Put(ctx, "/config/limit", []byte("10"))
		must(t, err)
		_, _, err = s.CreateWith(ctx, "/config/secret", []byte("42"), embed.CreateOptions{ACL: embed.CreatorACL()})
		must(t, err)
		for _, id := range ens.Members() {
			s := ens.Session(id, embed.SessionOptions{})
			_, err := s.Sync(ctx, "/config")
			must(t, err)
		}
		for _, id := range ens.Members() {
			ens.Kill(id)
		}
		n := ens.Start(1) // alone: it is not Ready
		data, stat, err := n.Peek().Get("/config/limit")
		if string(data) != "10" || stat.Version != 0 || err != nil {
			t.Errorf("%q, %v, %v", data, stat, err)
		}
		if names, _, err := n.Peek().Children("/config"); len(names) != 2 || err != nil {
			t.Errorf("%v, %v", names, err)
		}
		if _, there, err := n.Peek().Exists("/none"); there || err != nil {
			t.Errorf("%v, %v", there, err)
		}
		if data, _, err := n.Peek(owner).Get("/config/secret"); string(data) != "42" || err != nil {
			t.Errorf("its owner: %q, %v", data, err)
		}
		walked := 0
		for z, err := range n.Peek().Walk(ctx, "/config") {
			must(t, err)
			if walked++; z.Path == "/config/secret" || z.Zxid == 0 {
				t.Errorf("%+v", z)
			}
		}
		if walked != 2 {
			t.Errorf("a walk of %d znodes", walked)
		}
		_, _, secret := n.Peek().Get("/config/secret")
		_, _, none := n.Peek().Get("/none")
		_, _, path := n.Peek().Get("none")
		_, _, auth := n.Peek(embed.Auth{Scheme: "none"}).Get("/config/limit")
		_, _, zero := embed.Peek{}.Get("/config/limit")
		must(t, n.Close())
		_, _, closed := n.Peek().Get("/config/limit")
		for _, c := range []struct{ got, want error }{
			{secret, embed.ErrNoAuth}, {none, embed.ErrNoNode}, {path, embed.ErrInvalidPath}, {auth, embed.ErrAuthFailed},
			{zero, embed.ErrClosed}, {closed, embed.ErrClosed},
		} {
			if !errors.Is(c.got, c.want) {
				t.Errorf("%v, want %v", c.got, c.want)
			}
		}
	})
}

// A node that has loaded no state says so. An empty tree would say that there is no configuration.
func TestPeek_WhileJoining(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]embedtest.Options{
		"a founder": {Stopped: true}, "a founder of members that come and go": {Stopped: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testkit.Bubble(t, func(t *testing.T) {
				ens := embedtest.New(t, 3, o)
				n := ens.Start(1)
				for _, path := range []string{"/", "/config"} {
					if _, _, err := n.Peek().Get(path); !errors.Is(err, embed.ErrJoining) {
						t.Errorf("%s: %v", path, err)
					}
				}
				for _, err := range n.Peek().Walk(t.Context(), "/config") {
					if !errors.Is(err, embed.ErrJoining) {
						t.Error(err)
					}
				}
				ens.Start(2)
				ens.Start(3)
				ens.Ready(1)
				if _, there, err := n.Peek().Exists("/config"); there || err != nil {
					t.Errorf("when it is ready: %v, %v", there, err)
				}
			})
		})
	}
}

// A member that joins never shows less than what the ensemble had when it asked to join.
func TestPeek_OfANewMember(t *testing.T) {
	t.Parallel()
	testkit.Bubble(t, func(t *testing.T) {
		ctx := bounded(t)
		ens := embedtest.New(t, 1, embedtest.Options{})
		_, err := ens.Session(1, embed.SessionOptions{}).Put(ctx, "/config", []byte("x"))
		must(t, err)
		n := ens.Start(ens.AddPlace())
		ens.Until("it to show the configuration", func() bool {
			data, _, err := n.Peek().Get("/config")
			if err != nil && !errors.Is(err, embed.ErrJoining) {
				t.Fatal(err)
			}
			return string(data) == "x"
		})
	})
}
