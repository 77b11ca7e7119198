package certs

import (
	"encoding/asn1"
	"encoding/hex"
	"os"
	"strings"
	"testing"
)

// inHex are the subjects whose text differs from Java's, where another subject may have that text.
var inHex = map[string]string{
	"CN=nul\\00in":     "CN=#0c066e756c00696e",
	"CN=\\00w\\00e":    "CN=#1e0400770065",
	"CN=\ufffdt\ufffd": "CN=#1403e974e9",
}

// Each line of the file has a name in DER and what OpenJDK 17's X500Principal.getName says of it, both
// in hex.
func TestSubject_IsJavas(t *testing.T) {
	text, err := os.ReadFile("testdata/subjects.txt")
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[string]string)
	for line := range strings.Lines(string(text)) {
		name, java, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		der, err := hex.DecodeString(name)
		if err != nil {
			t.Fatal(err)
		}
		said, err := hex.DecodeString(java)
		if err != nil {
			t.Fatal(err)
		}
		want := string(said)
		if other, ok := inHex[want]; ok {
			want = other
		}
		got, err := Subject(der)
		if err != nil || got != want {
			t.Errorf("%s: %q, %v, want %q", name, got, err, want)
		}
		if before, ok := seen[got]; ok {
			t.Errorf("%s and %s are one identity: %q", before, name, got)
		}
		seen[got] = name
	}
	if len(seen) < 30 {
		t.Errorf("%d subjects", len(seen))
	}
}

// What is no name has no text, and nothing can be hidden behind the parts of a name.
func TestSubject_Refuses(t *testing.T) {
	type attribute struct {
		Type  asn1.ObjectIdentifier
		Value string `asn1:"utf8"`
	}
	type longer struct {
		Type  asn1.ObjectIdentifier
		Value string `asn1:"utf8"`
		More  int
	}
	cn := asn1.ObjectIdentifier{2, 5, 4, 3}
	set := func(v any) asn1.RawValue {
		b, err := asn1.MarshalWithParams(v, "set")
		if err != nil {
			t.Fatal(err)
		}
		return asn1.RawValue{FullBytes: b}
	}
	name := func(sets ...asn1.RawValue) []byte {
		b, err := asn1.Marshal(sets)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	good := name(set([]attribute{{cn, "a"}}))
	if text, err := Subject(good); err != nil || text != "CN=a" {
		t.Errorf("%q, %v", text, err)
	}
	for what, raw := range map[string][]byte{
		"nothing": nil, "bytes behind it": append(good[:len(good):len(good)], 0), "cut": good[:len(good)-1],
		"an empty set": name(set([]attribute{})), "an attribute of three": name(set([]longer{{cn, "a", 1}})),
	} {
		if text, err := Subject(raw); err == nil {
			t.Errorf("%s: %q", what, text)
		}
	}
}
