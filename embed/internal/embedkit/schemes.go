package embedkit

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"testing"
)

// Wants reports an error of the test unless got is want. what names the case.
func Wants(t *testing.T, what string, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// Tokens is a scheme of a service's own.
type Tokens struct{}

// Identify returns the hash of a token.
func (Tokens) Identify(credential []byte) (string, error) {
	if len(credential) == 0 {
		return "", errors.New("an empty token")
	}
	sum := sha256.Sum256(credential)
	return hex.EncodeToString(sum[:4]), nil
}

// Valid implements embed.Scheme.
func (Tokens) Valid(id string) bool { return len(id) == 8 || id == "*" }

// Matches implements embed.Scheme: the id * stands for everybody with a token.
func (Tokens) Matches(identity, id string) bool { return id == "*" || id == identity }

// Expands implements embed.Scheme.
func (Tokens) Expands() bool { return true }
