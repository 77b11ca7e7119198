package certs

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/vivarium-go/vivarium/internal/testkit"
)

// Package x509 takes what is whole of a file that is half written, which may be one authority of
// two. Such a file is refused, wherever it is cut within a certificate.
func TestFiles_HalfWritten(t *testing.T) {
	a, b := testkit.NewAuthority(t, "a"), testkit.NewAuthority(t, "b")
	cert, key := testkit.PEM(t, a.Issue(t))
	dir := t.TempDir()
	put := func(name string, data []byte) string {
		name = filepath.Join(dir, name)
		testkit.Must(t, os.WriteFile(name, data, 0o600))
		return name
	}
	keyFile := put("key", key)
	for _, first := range [][]byte{nil, bytes.TrimSpace(cert), append([]byte("a text\n\n"), cert...)} {
		chain := append(first[:len(first):len(first)], "\n"...)
		begin := len(chain)
		chain = append(chain, b.PEM()...)
		for n := begin; n <= len(chain); n += 7 {
			_, poolErr := Pool(put("ca", chain[:n]))
			_, pairErr := Pair(put("cert", append(cert[:len(cert):len(cert)], chain[:n]...)), keyFile)
			cut := n > begin+len("-----BEGIN ") && n < len(chain)-len("\n")
			switch {
			case cut && (poolErr == nil || !errors.Is(pairErr, errCut)):
				t.Errorf("%d of %d bytes: %v, %v", n, len(chain), poolErr, pairErr)
			case !cut && pairErr != nil:
				t.Errorf("%d of %d bytes: %v", n, len(chain), pairErr)
			}
		}
		if pool, err := Pool(put("ca", chain)); err != nil || pool.Equal(b.Pool) != (first == nil) {
			t.Errorf("a whole file: %v", err)
		}
	}
	for _, text := range []string{"", "text"} {
		if _, err := Pool(put("ca", []byte(text))); !errors.Is(err, errNone) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if _, err := Pool(filepath.Join(dir, "nothing")); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// Pair knows the certificate, even under a setting of Go by which package tls does not parse it.
func TestPair_Leaf(t *testing.T) {
	t.Setenv("GODEBUG", "x509keypairleaf=0")
	issued := testkit.NewAuthority(t, "a").Issue(t)
	cert, key := testkit.PEM(t, issued)
	dir := t.TempDir()
	testkit.Must(t, errors.Join(os.WriteFile(dir+"/cert", cert, 0o600), os.WriteFile(dir+"/key", key, 0o600)))
	got, err := Pair(dir+"/cert", dir+"/key")
	if err != nil || !issued.Leaf.Equal(got.Leaf) {
		t.Errorf("%v, %v", got.Leaf, err)
	}
}
