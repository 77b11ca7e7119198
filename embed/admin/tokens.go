package admin

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/vivarium-go/vivarium/embed"
)

// Tokens returns an Options.Authorize that knows senders by tokens: the header Authorization is
// "Bearer" and the token. A token is any text that nobody can guess, such as 32 random bytes in
// hex. The file has a line for each:
//
//	# name  role    SHA-256 of the token in hex                                       identities
//	alice   editor  2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae  digest:alice:secret
//	watch   viewer  fcde2b2edba56bf408601fb721fe9b5c338d10ee429ea04fae5511b68fbf8fb9
//
// An identity is a scheme, a colon and a credential without spaces; several may follow. Keep the
// file as secret as these. Empty lines, and lines that begin with "#", do not count.
//
// The file is read again when it has changed, so a line that is taken out ends what it granted. If
// it cannot be read or has a mistake, nobody is authorised until that is mended. Replace it by a
// rename, so that nobody reads half of it. Tokens fails if the file is wrong now.
func Tokens(file string) (func(*http.Request) (Grant, error), error) {
	t := &tokens{file: file}
	if _, err := t.current(); err != nil {
		return nil, fmt.Errorf("admin: tokens: %w", err)
	}
	return t.authorize, nil
}

// tokens are the tokens of a file.
type tokens struct {
	file string
	last atomic.Pointer[reading]
}

// A reading is what a file had.
type reading struct {
	info   os.FileInfo
	tokens []token
}

type token struct {
	sum   [sha256.Size]byte
	grant Grant
}

// tokensMax bounds the file, in bytes.
const tokensMax = 1 << 20

var errLongTokens = errors.New("the file has more than 1 MiB")

func (t *tokens) authorize(r *http.Request) (Grant, error) {
	text, ok := bearer(r)
	if !ok {
		return Grant{}, fmt.Errorf("%w: the header Authorization must be \"Bearer\" and a token", ErrUnauthorized)
	}
	list, err := t.current()
	if err != nil {
		return Grant{}, err
	}
	// All are compared, so the time tells nothing of which one was close.
	sum, found := sha256.Sum256([]byte(text)), -1
	for i := range list {
		if subtle.ConstantTimeCompare(sum[:], list[i].sum[:]) == 1 {
			found = i
		}
	}
	if found < 0 {
		return Grant{}, fmt.Errorf("%w: the token is not known", ErrUnauthorized)
	}
	return list[found].grant, nil
}

// bearer returns the token of a request.
func bearer(r *http.Request) (string, bool) {
	values := r.Header.Values("Authorization")
	if len(values) != 1 {
		return "", false
	}
	scheme, text, ok := strings.Cut(values[0], " ")
	return text, ok && strings.EqualFold(scheme, "Bearer") && text != ""
}

// current returns the tokens of the file as it is now.
func (t *tokens) current() ([]token, error) {
	info, err := os.Stat(t.file)
	if err != nil {
		return nil, err
	}
	last := t.last.Load()
	if last != nil && os.SameFile(info, last.info) && info.Size() == last.info.Size() && info.ModTime().Equal(last.info.ModTime()) {
		return last.tokens, nil
	}
	if info.Size() > tokensMax {
		return nil, fmt.Errorf("%s: %w", t.file, errLongTokens)
	}
	text, err := os.ReadFile(t.file)
	if err != nil {
		return nil, err
	}
	list, err := parseTokens(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t.file, err)
	}
	t.last.Store(&reading{info, list})
	return list, nil
}

// parseTokens reads the lines of a file. Its errors name the line, never what is in it.
func parseTokens(text []byte) (list []token, err error) {
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, tokensMax+1)
	for n := 1; lines.Scan(); n++ {
		fields := strings.Fields(lines.Text())
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		t, problem := parseToken(fields)
		switch {
		case problem != "":
			return nil, fmt.Errorf("line %d: %s", n, problem)
		case slices.ContainsFunc(list, func(o token) bool { return o.sum == t.sum }):
			return nil, fmt.Errorf("line %d: another line has the same token", n)
		}
		list = append(list, t)
	}
	return list, lines.Err()
}

// parseToken reads the fields of a line, or says what is wrong with them.
func parseToken(fields []string) (t token, problem string) {
	if len(fields) < 3 {
		return t, "want a name, a role and a SHA-256"
	}
	t.grant = Grant{Name: fields[0], Role: Role(fields[1])}
	if !t.grant.Role.valid() {
		return t, "the role is none of viewer, operator, editor and backup"
	}
	sum, err := hex.DecodeString(fields[2])
	if err != nil || len(sum) != sha256.Size {
		return t, "the third field is no SHA-256 in hex"
	}
	t.sum = [sha256.Size]byte(sum)
	for _, field := range fields[3:] {
		scheme, credential, ok := strings.Cut(field, ":")
		if !ok || scheme == "" {
			return t, "an identity is no scheme and credential"
		}
		t.grant.Identities = append(t.grant.Identities, embed.Auth{Scheme: scheme, Credential: []byte(credential)})
	}
	return t, ""
}
