//go:build unix

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
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
{"end":7}
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

// An export that stops at a damaged block is a shorter tree. Nothing is deleted for it, and nothing
// at all is done for a file of such lines.
func TestImport_OfCutLines(t *testing.T) {
	t.Parallel()
	dir, server, _ := served(t)
	tree := `{"path":"/app"}` + "\n"
	for i := range 50 {
		tree += fmt.Sprintf(`{"path":"/app/%02d","text":"%0100d"}`+"\n", i, i)
	}
	const noEnd = "vivarium import: the lines have no end: some may be missing\n"
	if code, out, stderr := fed(tree, "import", "-server", server, "-"); code != exitOK || stderr != noEnd {
		t.Errorf("%d, %s%s", code, out, stderr)
	}
	var whole strings.Builder
	n, err := backup.WriteLines(&whole, backup.Lines(strings.NewReader(tree+`{"end":51}`)))
	must(t, err)
	cut := strings.Join(slices.Collect(strings.Lines(whole.String()))[:n-10], "")
	file := filepath.Join(dir, "cut.jsonl")
	must(t, os.WriteFile(file, []byte(cut), 0o600))
	args := []string{"import", "-server", server, "-path", "/app", "-existing", "overwrite", "-prune"}
	for name, report := range map[string]string{"-": "0 created", file: ""} {
		code, out, stderr := fed(cut, append(args, name)...)
		if code != exitFailed || !strings.HasPrefix(out, report) || !strings.Contains(stderr, "the lines have no end") {
			t.Errorf("%s: %d, %s%s", name, code, out, stderr)
		}
	}
	if out := mustRun(t, whole.String(), append(args, "-")...); !strings.HasPrefix(out, "0 created, 0 overwritten, 51 existed, 0 deleted") {
		t.Error(out)
	}
}

// Whatever an ensemble of the default size holds comes back through a server of the default size:
// many long ACLs at once, and a znode with the most data, the longest ACL and a long path.
func TestImport_OfTheLargest(t *testing.T) {
	t.Parallel()
	_, server, _ := served(t)
	var lines strings.Builder
	fmt.Fprintln(&lines, `{"path":"/acls"}`)
	for i := range 101 {
		var acl []string
		for j := range 100 {
			acl = append(acl, fmt.Sprintf(`{"perms":31,"scheme":"digest","id":"%0600d:hash"}`, j))
		}
		if i == 100 {
			fmt.Fprintf(&lines, `{"path":"/acls/%s","text":"%s","acl":[%s]}`+"\n", strings.Repeat("n", 60<<10), strings.Repeat("x", embed.DefaultMaxDataSize), strings.Join(acl, ","))
			continue
		}
		fmt.Fprintf(&lines, `{"path":"/acls/%d","text":"x","acl":[%s]}`+"\n", i, strings.Join(acl, ","))
	}
	super := []string{"import", "-server", server, "-auth", "env:SUPER", "-"}
	for _, as := range []string{"-as=/acls", "-as=/again"} {
		if out := mustRun(t, lines.String(), slices.Concat(super[:5], []string{"-path=/acls", as}, super[5:])...); !strings.HasPrefix(out, "102 created") {
			t.Error(out)
		}
	}
	over := slices.Concat(super[:5], []string{"-existing", "overwrite"}, super[5:])
	if out := mustRun(t, strings.ReplaceAll(lines.String(), `"text":"x`, `"text":"y`), over...); !strings.HasPrefix(out, "0 created, 101 overwritten") {
		t.Error(out)
	}
}

// Below a root of the server, or of -as, a znode named zookeeper is as any other. What would come to
// the ensemble's own /zookeeper is left out, and counted.
func TestImport_ZnodesNamedZookeeper(t *testing.T) {
	t.Parallel()
	_, server, _ := served(t)
	mustRun(t, `{"path":"/tenant"}`, "import", "-server", server, "-")
	lines := `{"path":"/svc","text":""}
{"path":"/svc/zookeeper","text":"user data"}
{"path":"/svc/zookeeper/config","text":"more"}
{"path":"/svc/other","text":"x"}
`
	super := []string{"import", "-auth", "env:SUPER", "-path", "/svc"}
	for top, more := range map[string][]string{
		"/tenant": {"-as", "/", "-server", server + "/tenant"},
		"/copy":   {"-as", "/copy", "-server", server},
	} {
		if out := mustRun(t, lines, append(append(super, more...), "-")...); !strings.Contains(out, " created") || strings.Contains(out, "because") {
			t.Error(out)
		}
		for path, want := range map[string]string{"/zookeeper": "user data", "/zookeeper/config": "more", "/other": "x"} {
			if got := mustRun(t, "", "shell", "-server", server, "get", top+path); !strings.HasPrefix(got, want) {
				t.Errorf("%s%s: %s", top, path, got)
			}
		}
		if out := mustRun(t, lines, slices.Concat(super, more, []string{"-existing", "overwrite", "-"})...); !strings.HasPrefix(out, "0 created, 0 overwritten") {
			t.Errorf("again: %s", out)
		}
	}
	if out := mustRun(t, lines, append(super, "-as", "/", "-server", server, "-")...); !strings.HasSuffix(out, ", 2 left out because /zookeeper is the ensemble's own\n") {
		t.Error(out)
	}
}

// A secret does not come under the ACL that a znode had before, if the server refuses its own.
func TestImport_NoDataUnderAnOldACL(t *testing.T) {
	t.Parallel()
	_, server, _ := served(t)
	mustRun(t, `{"path":"/s","text":""}`+"\n"+`{"path":"/s/secret","text":"old"}`, "import", "-server", server, "-")
	secret := `{"path":"/s/secret","text":"password","acl":[{"perms":31,"scheme":"sasl","id":"alice"}]}`
	code, out, stderr := fed(secret, "import", "-server", server, "-auth", "env:SUPER", "-path", "/s", "-existing", "overwrite", "-")
	if code != exitFailed || !strings.Contains(stderr, "InvalidACL") {
		t.Errorf("%d, %s%s", code, out, stderr)
	}
	if got := mustRun(t, "", "shell", "-server", server, "get", "/s/secret"); !strings.HasPrefix(got, "old") {
		t.Error(got)
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
