package gateway

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/vivarium-go/vivarium/internal/certs"
	"github.com/vivarium-go/vivarium/internal/meter"
)

// usersFileMax bounds the bytes of the file of users: room for more than 100,000 users with names of
// usual length.
const usersFileMax = 16 << 20

// users is DigestMD5 for the users of a file. The file is read again when it changes.
type users struct {
	file     string
	now      atomic.Pointer[map[string][16]byte]
	failures meter.Counter // readings of the file that changed nothing, because it could not be used
}

func openUsers(file string) (*users, error) {
	u := &users{file: file}
	_, err := u.reload()
	return u, err
}

func (u *users) Begin(client net.Conn) Exchange { return DigestMD5(u.ha1).Begin(client) }

func (u *users) ha1(user string) ([16]byte, bool) {
	secret, ok := (*u.now.Load())[user]
	return secret, ok
}

// reload reads the file again and reports whether the users have changed. After an error the old
// ones stay. Of two calls at once, the one that read an older file looks again.
func (u *users) reload() (changed bool, err error) {
	for {
		old := u.now.Load()
		list, err := readUsers(u.file)
		if err != nil {
			u.failures.Inc()
			return false, fmt.Errorf("SASLUsers %q: %w", u.file, err)
		}
		if old != nil && maps.Equal(*old, list) {
			return false, nil
		}
		if u.now.CompareAndSwap(old, &list) {
			return true, nil
		}
	}
}

// loop reads the file again as often as those of certificates, until stop is closed. It logs what
// changes, and once what cannot be used.
func (u *users) loop(log *slog.Logger, stop <-chan struct{}) {
	look := time.NewTicker(certs.Look)
	defer look.Stop()
	var failed string
	for {
		select {
		case <-look.C:
		case <-stop:
			return
		}
		switch changed, err := u.reload(); {
		case err != nil && err.Error() != failed:
			failed = err.Error()
			log.Warn("the file of users is not used", "cause", err)
		case err == nil:
			failed = ""
			if changed {
				log.Info("the file of users was read again", "count", len(*u.now.Load()))
			}
		}
	}
}

func readUsers(name string) (map[string][16]byte, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, usersFileMax+1))
	if err != nil {
		return nil, err
	}
	if len(text) > usersFileMax {
		return nil, fmt.Errorf("it has more than %d bytes", usersFileMax)
	}
	return parseUsers(text)
}

// parseUsers reads a line for each user. Its errors name lines, and nothing that is in them.
func parseUsers(text []byte) (map[string][16]byte, error) {
	list := make(map[string][16]byte)
	n := 0
	for line := range bytes.Lines(text) {
		n++
		line = bytes.TrimSpace(line)
		if len(line) == 0 || line[0] == '#' {
			continue
		}
		user, secret, err := parseUser(string(line))
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		if _, twice := list[user]; twice {
			return nil, fmt.Errorf("line %d: the user has a line before it", n)
		}
		list[user] = secret
	}
	return list, nil
}

func parseUser(line string) (user string, secret [16]byte, err error) {
	part := strings.Split(line, ":")
	if len(part) != 3 || len(part[2]) != hex.EncodedLen(len(secret)) {
		return "", secret, errUserLine
	}
	if _, err := hex.Decode(secret[:], []byte(part[2])); err != nil {
		return "", secret, errUserLine // err would quote the line
	}
	if part[1] != digestRealm {
		return "", secret, fmt.Errorf("the realm is not %s, that of ZooKeeper's clients", digestRealm)
	}
	return part[0], secret, checkUser(part[0])
}

var (
	errUserLine = errors.New("want user:" + digestRealm + ":HA1, the HA1 in 32 hexadecimal digits")
	errNotASCII = errors.New("want printable ASCII only: clients differ in how they hash the rest")
)

// UserLine returns the line of Config.SASLUsers for a user and a password, which may have printable
// ASCII only. Clients differ in how they encode other characters before they hash them.
func UserLine(user, password string) (string, error) {
	isOther := func(r rune) bool { return r < ' ' || r > '~' }
	if strings.ContainsFunc(user+password, isOther) {
		return "", errNotASCII
	}
	if password == "" {
		return "", errors.New("the password is empty")
	}
	if user != strings.TrimSpace(user) || strings.HasPrefix(user, "#") {
		return "", errors.New("the user's name begins with a # or a space, or ends with a space")
	}
	if err := checkUser(user); err != nil {
		return "", err
	}
	return fmt.Sprintf("%s:%s:%x", user, digestRealm, HA1(user, password)), nil
}

// checkUser refuses a name that a line cannot have, or an ACL.
func checkUser(user string) error {
	switch {
	case user == "" || len(user) > nameMax:
		return fmt.Errorf("the user's name has %d bytes, want 1 to %d", len(user), nameMax)
	case strings.Contains(user, ":"), strings.ContainsFunc(user, unicode.IsControl):
		return errors.New("the user's name has a colon or a control character")
	case !utf8.ValidString(user):
		return errors.New("the user's name is not in UTF-8")
	case !SASL().Valid(user):
		return errors.New("the user's name has an @ and is no name of Kerberos")
	}
	return nil
}
