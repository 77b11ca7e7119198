//go:build unix

package main

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/vivarium-go/vivarium/cmd/vivarium/internal/client"
	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/backup"
	"github.com/vivarium-go/vivarium/internal/wire"
)

// An operator brings back a subtree at another place, looks first at what would be done, and
// deletes what the backup does not have.
func TestImport_IntoALivingTree(t *testing.T) {
	t.Parallel()
	_, server, _ := served(t)
	lines := `{"path":"/a","text":"1"}
{"path":"/a/container","mode":"container"}
{"path":"/a/container/x","text":""}
{"path":"/a/dead","mode":"ephemeral","owner":7}
{"path":"/a/nil"}
{"path":"/a/ttl","mode":"ttl","ttl":3600000,"acl":[{"perms":1,"scheme":"world","id":"anyone"}]}
{"path":"/other","text":"not asked for"}
`
	mustRun(t, `{"path":"/b","text":"2"}
{"path":"/b/nil"}
{"path":"/b/extra"}
{"path":"/b/extra/x"}
{"path":"/b-x"}
`, "import", "-server", server, "-")
	args := []string{"import", "-server", server, "-auth", "env:SUPER", "-path", "/a", "-as", "/b", "-existing", "overwrite", "-prune", "-"}
	dry := func() string { return mustRun(t, lines, append(args[:len(args)-1:len(args)-1], "-dry-run", "-")...) }
	const (
		steps  = "overwrite /b\ncreate /b/container\ncreate /b/container/x\ncreate /b/ttl\ndelete /b/extra/x\ndelete /b/extra\n"
		report = "3 created, 1 overwritten, 1 existed, 2 deleted, 0 kept, 1 ephemerals left out\n"
	)
	for range 2 { // the first one changes nothing
		if out := dry(); out != steps+"dry run: "+report {
			t.Error(out)
		}
	}
	if out := mustRun(t, lines, args...); out != report {
		t.Error(out)
	}
	const again = "0 created, 0 overwritten, 5 existed, 0 deleted, 0 kept, 1 ephemerals left out\n"
	if out := dry(); out != "dry run: "+again {
		t.Error(out)
	}
	if out := mustRun(t, lines, args...); out != again {
		t.Error(out)
	}
	out := mustRun(t, "", "shell", "-server", server, "ls", "-R", "/")
	for path, want := range map[string]bool{"/b/container/x\n": true, "/b/nil\n": true, "/b-x\n": true, "/b/extra": false, "/b/dead": false, "/other": false} {
		if strings.Contains(out, path) != want {
			t.Errorf("%q is there: %v\n%s", path, !want, out)
		}
	}
	for want, more := range map[string][]string{
		"does not have this znode": {"-path", "/none", "-existing", "skip", "-prune"},
		"Options.Prune":            {"-prune"},
		"/none/b: ":                {"-path", "/a", "-as", "/none/b"},
		"invalid path":             {"-as", "/zookeeper/x"},
	} {
		args := append([]string{"import", "-server", server}, append(more, "-")...)
		if code, out, stderr := fed(lines, args...); code != exitFailed || !strings.Contains(stderr, want) || !strings.HasPrefix(out, "0 created") {
			t.Errorf("%q: %d, %s%s", more, code, out, stderr)
		}
	}
}

// A prune through a server deletes only what it has read. A znode that was created anew has another
// zxid. One that has the right zxid and is an ephemeral can only come of a race, and stays as well.
func TestRemote_DeletesOnlyWhatItRead(t *testing.T) {
	t.Parallel()
	_, server, _ := served(t)
	servers, root, err := client.ParseServers(server)
	must(t, err)
	zk, err := connect(t.Context(), client.Config{Servers: servers, Chroot: root}, nil)
	must(t, err)
	defer zk.Close()
	to := remote{zk}
	call := func(o wire.Operation) { // with an open ACL, if that matters
		t.Helper()
		o.ACL = aclOf(&backup.Znode{ACL: embed.OpenACL()})
		_, err := to.call(t.Context(), o)
		must(t, err)
	}
	get := func(path string) backup.Znode {
		t.Helper()
		z, err := to.Get(t.Context(), path)
		must(t, err)
		return z
	}
	for _, path := range []string{"/a", "/a/anew", "/a/held", "/a/same", "/a/same/below"} {
		call(wire.Operation{Op: wire.OpCreate, Path: path})
	}
	read := map[string]backup.Znode{"/a/anew": get("/a/anew"), "/a/held": get("/a/held")}
	for path := range read {
		call(wire.Operation{Op: wire.OpDelete, Path: path, Version: -1})
	}
	call(wire.Operation{Op: wire.OpCreate, Path: "/a/anew"})
	call(wire.Operation{Op: wire.OpCreate, Path: "/a/held", Flags: wire.FlagsEphemeral})
	for what, z := range map[string]backup.Znode{
		"created anew":              read["/a/anew"],
		"an ephemeral in its place": read["/a/held"],
		"an ephemeral after a race": get("/a/held"),
	} {
		if err := to.Delete(t.Context(), []backup.Znode{get("/a/same/below"), z}); !errors.Is(err, embed.ErrBadVersion) {
			t.Errorf("%s: %v", what, err)
		}
	}
	must(t, to.Delete(t.Context(), []backup.Znode{get("/a/same/below"), get("/a/same")}))
	names, err := to.Children(t.Context(), "/a")
	must(t, err)
	if slices.Sort(names); !slices.Equal(names, []string{"anew", "held"}) {
		t.Errorf("%q", names)
	}
}
