//go:build unix

package main

import (
	"strings"
	"testing"
)

// An operator brings back a subtree at another place, looks first at what would be done, and
// deletes what the backup does not have.
func TestImport_IntoALivingTree(t *testing.T) {
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
	args := []string{"import", "-server", server, "-auth", "digest:super:pw", "-path", "/a", "-as", "/b", "-existing", "overwrite", "-prune", "-"}
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
