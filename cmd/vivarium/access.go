package main

import (
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/vivarium-go/vivarium/cmd/vivarium/internal/client"
	"github.com/vivarium-go/vivarium/cmd/vivarium/internal/shell"
	"github.com/vivarium-go/vivarium/internal/wire"
)

// An access is how a command reaches servers as a client: with which credentials and TLS. Its flags
// say where a credential is, because everybody on the machine can see a command's arguments.
type access struct {
	flags   [2]string // the names of its flags
	sources []string  // where credentials are
	tlsFile string

	auth []wire.Auth // after read
	tls  *tls.Config // after read; nil: plain text
}

// define defines the two flags of a side.
func (a *access) define(to *flag.FlagSet, auth, configuration, of string) {
	a.flags = [2]string{"-" + auth, "-" + configuration}
	to.Func(auth, "where a credential for the "+of+" is, such as digest:super:password: `file:NAME`, env:NAME, or ask to\nbe asked on the terminal. May be repeated", func(source string) error {
		a.sources = append(a.sources, source)
		return nil
	})
	to.StringVar(&a.tlsFile, configuration, "", "`file` with ZooKeeper's properties for TLS with the "+of+", as for vivarium shell")
}

// read reads what the flags name. Whoever is asked on the terminal sees the question on stderr.
func (a *access) read(stdin io.Reader, stderr io.Writer) (err error) {
	for _, source := range a.sources {
		text, err := credential(source, a.flags[0], stdin, stderr)
		if err != nil {
			return fmt.Errorf("%s: %w", a.flags[0], err)
		}
		scheme, proof, ok := strings.Cut(text, ":")
		if !ok || scheme == "" {
			return fmt.Errorf("%s: what %s has is no credential: want scheme:credential", a.flags[0], source)
		}
		a.auth = append(a.auth, wire.Auth{Scheme: scheme, Proof: []byte(proof)})
	}
	if a.tlsFile == "" {
		return nil
	}
	if a.tls, err = client.ReadTLS(a.tlsFile); err != nil {
		return fmt.Errorf("%sclient-configuration: %w", strings.TrimSuffix(a.flags[0], "auth"), err)
	}
	return nil
}

// credential returns the text of a credential. No error has a part of it, nor of a source that may
// be one.
func credential(source, flag string, stdin io.Reader, stderr io.Writer) (string, error) {
	kind, name, _ := strings.Cut(source, ":")
	switch {
	case kind == "file":
		f, err := os.Open(name)
		if err != nil {
			return "", err
		}
		defer f.Close()
		return readPassword(f)
	case kind == "env":
		text, ok := os.LookupEnv(name)
		if !ok {
			return "", fmt.Errorf("there is no environment variable %s", name)
		}
		return text, nil
	case source == "ask":
		return shell.AskSecret(stdin, stderr, "credential for "+flag+", such as digest:super:password: ")
	}
	return "", errors.New("everybody on the machine can see it there: put the credential into a file and say file:NAME, or say env:NAME or ask")
}
