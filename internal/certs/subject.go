package certs

import (
	"bytes"
	"encoding/asn1"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"unicode/utf8"
)

// keywords are the types of attributes that RFC 2253 has names for, as Java writes them.
var keywords = map[string]string{
	"2.5.4.3": "CN", "2.5.4.6": "C", "2.5.4.7": "L", "2.5.4.8": "ST", "2.5.4.9": "STREET", "2.5.4.10": "O", "2.5.4.11": "OU",
	"0.9.2342.19200300.100.1.25": "DC", "0.9.2342.19200300.100.1.1": "UID",
}

var errSubject = errors.New("the subject of the certificate is no distinguished name")

// Subject returns the text of a distinguished name in DER, such as a certificate's RawSubject, as
// Java's X500Principal.getName does: RFC 2253, such as "CN=web,OU=shop,DC=example". ZooKeeper's ACLs
// have that text.
//
// Names that differ have texts that differ; only whether a text in ASCII is of one of ASN.1's types or
// of another does not count. That is why some values are in hex here whose text in Java may be that of
// another: those with a NUL or with bytes that are no UTF-8, BMPStrings, and old types beyond ASCII.
func Subject(raw []byte) (string, error) {
	sets, err := elements(raw, "")
	if err != nil {
		return "", err
	}
	var parts []string
	for _, set := range slices.Backward(sets) {
		list, err := elements(set.FullBytes, "set")
		if err != nil || len(list) == 0 {
			return "", errSubject
		}
		texts := make([]string, len(list))
		for i, a := range list {
			if texts[i], err = attribute(a.FullBytes); err != nil {
				return "", err
			}
		}
		parts = append(parts, strings.Join(texts, "+"))
	}
	return strings.Join(parts, ","), nil
}

// elements returns what a sequence or a set consists of.
func elements(raw []byte, params string) (list []asn1.RawValue, err error) {
	if rest, err := asn1.UnmarshalWithParams(raw, &list, params); err != nil || len(rest) > 0 {
		return nil, errSubject
	}
	return list, nil
}

// attribute returns the text of a type and a value. What RFC 2253 has no name for is in numbers and
// hex.
func attribute(raw []byte) (string, error) {
	pair, err := elements(raw, "")
	if err != nil || len(pair) != 2 {
		return "", errSubject
	}
	var oid asn1.ObjectIdentifier
	if _, err := asn1.Unmarshal(pair[0].FullBytes, &oid); err != nil {
		return "", errSubject
	}
	word, known := keywords[oid.String()]
	switch value := pair[1]; {
	case !known:
		return oid.String() + "=#" + hex.EncodeToString(value.FullBytes), nil
	case !isText(value):
		return word + "=#" + hex.EncodeToString(value.FullBytes), nil
	default:
		return word + "=" + escaped(string(value.Bytes)), nil
	}
}

// isText reports whether the bytes of a value are its text in UTF-8.
func isText(v asn1.RawValue) bool {
	const generalString = 27
	if v.Class != asn1.ClassUniversal || bytes.IndexByte(v.Bytes, 0) >= 0 {
		return false
	}
	switch v.Tag {
	case asn1.TagUTF8String:
		return utf8.Valid(v.Bytes)
	case asn1.TagPrintableString, asn1.TagIA5String, asn1.TagT61String, generalString:
		return !bytes.ContainsFunc(v.Bytes, func(c rune) bool { return c >= utf8.RuneSelf })
	}
	return false
}

// escaped escapes what would end a value or change its meaning. Like Java, it escapes every blank at
// either end.
func escaped(text string) string {
	const blanks = " \r"
	var b strings.Builder
	lead := len(text) - len(strings.TrimLeft(text, blanks))
	trail := len(strings.TrimRight(text, blanks))
	for i, c := range text {
		if strings.ContainsRune(",=+<>#;\"\\", c) || strings.ContainsRune(blanks, c) && (i < lead || i >= trail) {
			b.WriteByte('\\')
		}
		b.WriteRune(c)
	}
	return b.String()
}
