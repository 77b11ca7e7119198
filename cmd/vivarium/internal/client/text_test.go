package client

import (
	"slices"
	"testing"
)

func TestParseServers(t *testing.T) {
	for _, c := range []struct {
		text    string
		servers []string
		chroot  string
	}{
		{"a:1", []string{"a:1"}, ""},
		{"a", []string{"a:2181"}, ""},
		{"a:1,b:2", []string{"a:1", "b:2"}, ""},
		{"a:1, b ,", []string{"a:1", "b:2181"}, ""},
		{"a:1,b:2/app/x", []string{"a:1", "b:2"}, "/app/x"},
		{"a/", []string{"a:2181"}, ""},
		{"[::1]:5", []string{"[::1]:5"}, ""},
		{"[::1]", []string{"[::1]:2181"}, ""},
		{"::1", []string{"[::1]:2181"}, ""},
		{"127.0.0.1:2181", []string{"127.0.0.1:2181"}, ""},
	} {
		servers, chroot, err := ParseServers(c.text)
		if err != nil || !slices.Equal(servers, c.servers) || chroot != c.chroot {
			t.Errorf("%q: %q %q %v", c.text, servers, chroot, err)
		}
	}
	for _, text := range []string{"", ",", "/app", "a:", ":1", "a:x", "a:0", "a:65536", "a:1/app/", "a:1//", "[::1", "[", "]", "[]:1"} {
		if servers, _, err := ParseServers(text); err == nil {
			t.Errorf("%q: %q", text, servers)
		}
	}
}

func TestCheckPath(t *testing.T) {
	for path, want := range map[string]string{
		"/": "", "/a": "", "/a/b.c/..d/...": "", "/ü/漢": "", "/\u00a0": "", "/\uf900": "",
		"":         "Path length must be > 0",
		"a":        "Path must start with / character",
		"/a/":      "Path must not end with / character",
		"//":       "Path must not end with / character",
		"//a":      `Invalid path string "//a" caused by empty node name specified @1`,
		"/a//b":    `Invalid path string "/a//b" caused by empty node name specified @3`,
		"/a/./b":   `Invalid path string "/a/./b" caused by relative paths not allowed @3`,
		"/a/..":    `Invalid path string "/a/.." caused by relative paths not allowed @4`,
		"/a\x00":   "Invalid path string \"/a\x00\" caused by null character not allowed @2",
		"/a\x1fb":  "Invalid path string \"/a\x1fb\" caused by invalid character @2",
		"/ü/\x7f":  "Invalid path string \"/ü/\x7f\" caused by invalid character @3",
		"/a😀":      "Invalid path string \"/a😀\" caused by invalid character @2",
		"/a\ufffd": "Invalid path string \"/a\ufffd\" caused by invalid character @2",
	} {
		got := ""
		if err := CheckPath(path); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%q: %q, want %q", path, got, want)
		}
	}
}
