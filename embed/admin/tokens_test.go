package admin_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed/admin"
)

func sum(token string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(token))) }

func bearer(value string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	if value != "" {
		r.Header.Set("Authorization", value)
	}
	return r
}

func TestTokens(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens")
	must(t, os.WriteFile(file, []byte("# the tokens\n\nalice editor "+sum("one")+" digest:alice:a:b ip:10.0.0.1\n  bob\tviewer\t"+sum("two")+"\n"), 0o600))
	authorize, err := admin.Tokens(file)
	must(t, err)
	g, err := authorize(bearer("Bearer one"))
	if err != nil || g.Name != "alice" || g.Role != admin.Editor || len(g.Identities) != 2 || string(g.Identities[0].Credential) != "alice:a:b" {
		t.Errorf("%+v %v", g, err)
	}
	if g, err := authorize(bearer("bearer two")); err != nil || g.Name != "bob" || g.Role != admin.Viewer || g.Identities != nil {
		t.Errorf("%+v %v", g, err)
	}
	for _, value := range []string{"", "one", "Basic one", "Bearer", "Bearer ", "Bearer three", "Bearer one ", "Bearer  one", "Bearer " + sum("one")} {
		if g, err := authorize(bearer(value)); !errors.Is(err, admin.ErrUnauthorized) || g.Role != "" {
			t.Errorf("%q: %+v %v", value, g, err)
		}
	}
	twice := bearer("Bearer one")
	twice.Header.Add("Authorization", "Bearer one")
	if _, err := authorize(twice); !errors.Is(err, admin.ErrUnauthorized) {
		t.Errorf("twice: %v", err)
	}
}

// A token that is taken out of the file opens nothing any more, and a broken file opens nothing.
func TestTokens_AreReadAgain(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens")
	write := func(text string, age time.Duration) {
		t.Helper()
		must(t, os.WriteFile(file+".new", []byte(text), 0o600))
		at := time.Now().Add(-age)
		must(t, os.Chtimes(file+".new", at, at))
		must(t, os.Rename(file+".new", file))
	}
	write("alice editor "+sum("one")+"\n", time.Hour)
	authorize, err := admin.Tokens(file)
	must(t, err)
	write("alice editor "+sum("two")+"\n", time.Hour) // as long, and as old
	if _, err := authorize(bearer("Bearer one")); !errors.Is(err, admin.ErrUnauthorized) {
		t.Errorf("an old token: %v", err)
	}
	if _, err := authorize(bearer("Bearer two")); err != nil {
		t.Errorf("a new token: %v", err)
	}
	write("alice boss "+sum("two")+"\n", 0)
	if _, err := authorize(bearer("Bearer two")); err == nil || errors.Is(err, admin.ErrUnauthorized) {
		t.Errorf("a broken file: %v", err)
	}
	must(t, os.Remove(file))
	if _, err := authorize(bearer("Bearer two")); err == nil || errors.Is(err, admin.ErrUnauthorized) {
		t.Errorf("no file: %v", err)
	}
	write("alice editor "+sum("two")+"\n", 0)
	if _, err := authorize(bearer("Bearer two")); err != nil {
		t.Errorf("a mended file: %v", err)
	}
}

func TestTokens_Refuses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens")
	if _, err := admin.Tokens(file); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	for text, want := range map[string]string{
		"alice editor\n":                                  "line 1",
		"\nalice boss " + sum("x") + "\n":                 "line 2: the role",
		"alice editor secret\n":                           "SHA-256",
		"alice editor " + sum("x")[1:] + "\n":             "SHA-256",
		"alice editor " + sum("x") + " secret\n":          "identity",
		"alice editor " + sum("x") + " :secret\n":         "identity",
		"a editor " + sum("x") + "\nb viewer " + sum("x"): "line 2: another line",
		strings.Repeat("# long\n", 200_000):               "1 MiB",
	} {
		must(t, os.WriteFile(file, []byte(text), 0o600))
		if _, err := admin.Tokens(file); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%.40q: %v", text, err)
		}
	}
}
