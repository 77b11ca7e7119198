package certs

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"os"
)

// Errors of files with certificates.
var (
	errNone = errors.New("holds no PEM certificate")
	errCut  = errors.New("ends within a certificate: it may be half written")
)

// Pair reads a certificate chain and its key. It sets Leaf, which package tls may be told not to.
func Pair(certFile, keyFile string) (tls.Certificate, error) {
	chain, err := os.ReadFile(certFile)
	if err != nil {
		return tls.Certificate{}, err
	}
	key, err := os.ReadFile(keyFile)
	if err != nil {
		return tls.Certificate{}, err
	}
	cert, err := tls.X509KeyPair(chain, key)
	if err == nil && isCut(chain) {
		err = errCut
	}
	if err != nil {
		return tls.Certificate{}, err
	}
	cert.Leaf = leaf(cert)
	return cert, nil
}

// Pool returns the authorities in a PEM file.
func Pool(file string) (*x509.CertPool, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	switch {
	case !pool.AppendCertsFromPEM(text):
		return nil, errNone
	case isCut(text):
		return nil, errCut
	}
	return pool, nil
}

// isCut reports whether text ends within a PEM block. Package x509 passes over such a block.
func isCut(text []byte) bool {
	for {
		block, rest := pem.Decode(text)
		if block == nil {
			return bytes.Contains(rest, []byte("-----BEGIN "))
		}
		text = rest
	}
}

// leaf returns the first certificate of a chain, or nil if there is none that can be parsed.
func leaf(c tls.Certificate) *x509.Certificate {
	if c.Leaf != nil || len(c.Certificate) == 0 {
		return c.Leaf
	}
	parsed, err := x509.ParseCertificate(c.Certificate[0])
	if err != nil {
		return nil
	}
	return parsed
}
