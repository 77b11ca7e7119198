package client

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"
)

// The properties of a -client-configuration that matter. They are ZooKeeper's. All others are
// ignored, as ZooKeeper ignores unknown ones.
const (
	secureProperty   = "zookeeper.client.secure"
	trustProperty    = "zookeeper.ssl.trustStore.location"
	keyProperty      = "zookeeper.ssl.keyStore.location"
	hostnameProperty = "zookeeper.ssl.hostnameVerification"
)

// ReadTLS reads a file of properties and returns the TLS config of connections; nil means plain
// text. The stores are PEM files. The trust store holds the authorities of servers' certificates;
// without one, they are the system's. The key store holds the client's certificates and their key.
func ReadTLS(file string) (*tls.Config, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	set := properties(string(b))
	switch strings.ToLower(set[secureProperty]) {
	case "true":
	case "", "false":
		return nil, nil
	default: // Java reads anything else as false
		return nil, fmt.Errorf("%s is %q: want true or false", secureProperty, set[secureProperty])
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if store := set[trustProperty]; store != "" {
		pem, err := readPEM(trustProperty, store)
		if err != nil {
			return nil, err
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s: %s holds no certificate", trustProperty, store)
		}
	}
	if store := set[keyProperty]; store != "" {
		pem, err := readPEM(keyProperty, store)
		if err != nil {
			return nil, err
		}
		pair, err := tls.X509KeyPair(pem, pem)
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", keyProperty, store, err)
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	if strings.EqualFold(set[hostnameProperty], "false") {
		anyName(cfg)
	}
	return cfg, nil
}

func readPEM(property, file string) ([]byte, error) {
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", property, err)
	}
	if !bytes.Contains(pem, []byte("-----BEGIN ")) {
		return nil, fmt.Errorf("%s: %s is not a PEM file. Convert Java's own stores to PEM", property, file)
	}
	return pem, nil
}

// anyName makes cfg verify servers as usual, except for their names.
func anyName(cfg *tls.Config) {
	cfg.InsecureSkipVerify = true // skips everything; VerifyConnection does all but the name
	cfg.VerifyConnection = func(s tls.ConnectionState) error {
		if len(s.PeerCertificates) == 0 {
			return errors.New("the server has no certificate")
		}
		o := x509.VerifyOptions{Roots: cfg.RootCAs, Intermediates: x509.NewCertPool()}
		for _, c := range s.PeerCertificates[1:] {
			o.Intermediates.AddCert(c)
		}
		_, err := s.PeerCertificates[0].Verify(o)
		return err
	}
}

// properties parses lines of "name=value", "name: value" or "name value". It skips lines that begin
// with # or !.
func properties(text string) map[string]string {
	set := make(map[string]string)
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' || line[0] == '!' {
			continue
		}
		end := strings.IndexAny(line, "=: \t\f")
		if end < 0 {
			end = len(line)
		}
		name, value := line[:end], strings.TrimSpace(line[end:])
		if value != "" && (value[0] == '=' || value[0] == ':') {
			value = strings.TrimSpace(value[1:])
		}
		set[name] = value
	}
	return set
}
