package shell

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"
)

// The properties of a -client-configuration that count. They are ZooKeeper's; all others are passed over, as there.
const (
	secureProperty   = "zookeeper.client.secure"
	trustProperty    = "zookeeper.ssl.trustStore.location"
	keyProperty      = "zookeeper.ssl.keyStore.location"
	hostnameProperty = "zookeeper.ssl.hostnameVerification"
)

// clientTLS reads a file of properties and returns how connections are encrypted, nil if they are not. The stores are PEM files: the
// authorities that servers are trusted by, the system's if there is no such property, and the client's certificates with their key.
func clientTLS(file string) (*tls.Config, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	set := properties(string(b))
	switch strings.ToLower(set[secureProperty]) {
	case "true":
	case "", "false":
		return nil, nil
	default: // which is false to Java
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
		return nil, fmt.Errorf("%s: %s is no PEM file: Java's own stores are not read", property, file)
	}
	return pem, nil
}

// anyName has servers verified as ever, but for their names.
func anyName(cfg *tls.Config) {
	cfg.InsecureSkipVerify = true // of all; the rest is done here
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

// properties reads lines of "name=value", "name: value" or "name value"; one that begins with # or ! says nothing.
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
