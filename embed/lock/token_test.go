package lock_test

import (
	"cmp"
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/lock"
	"github.com/vivarium-go/vivarium/internal/testkit"
)

// E1: a token has room for grants between two commits, and its text sorts as the token does.
func TestToken_TextSortsAndRoundTrips(t *testing.T) {
	rng := testkit.Rand(t)
	tokens := []lock.Token{{}, {Zxid: 1}, {Local: 1}, {Zxid: math.MaxInt64, Local: math.MaxUint64}, {Zxid: 999_999_999_999_999_999}, {Zxid: 1e18}}
	for range 200 {
		tokens = append(tokens, lock.Token{Zxid: embed.Zxid(rng.Int64() >> rng.IntN(63)), Local: rng.Uint64() >> rng.IntN(64)})
	}
	for _, a := range tokens {
		var back lock.Token
		if err := back.UnmarshalText([]byte(a.String())); err != nil || back != a {
			t.Errorf("%v became %v, %v", a, back, err)
		}
		for _, b := range tokens {
			want := cmp.Or(cmp.Compare(a.Zxid, b.Zxid), cmp.Compare(a.Local, b.Local))
			if a.Compare(b) != want || strings.Compare(a.String(), b.String()) != want {
				t.Errorf("%v and %v: Compare %d, by text %d, want %d", a, b, a.Compare(b), strings.Compare(a.String(), b.String()), want)
			}
		}
	}
}

func TestToken_IsAString(t *testing.T) {
	text, err := json.Marshal(map[string]lock.Token{"token": {Zxid: 42, Local: 7}})
	must(t, err)
	if want := `{"token":"00000000000000000042-00000000000000000007"}`; string(text) != want {
		t.Errorf("got %s, want %s", text, want)
	}
}

func TestToken_RefusesEverythingElse(t *testing.T) {
	for _, text := range []string{
		"", "0", "42-7", "00000000000000000042", "00000000000000000042-0000000007", "00000000000000000042-0000000000000000007", "00000000000000000042-000000000000000000007",
		"00000000000000000042_00000000000000000007", "-0000000000000000042-00000000000000000007", "+0000000000000000042-00000000000000000007",
		"0000000000000000004x-00000000000000000007", "00000000000000000042-0000000000000000 007", "99999999999999999999-00000000000000000000",
		" 0000000000000000042-00000000000000000007", "0000000000000000_042-00000000000000000007", "00000000000000000042-99999999999999999999",
	} {
		kept := lock.Token{Zxid: 3}
		if err := kept.UnmarshalText([]byte(text)); err == nil || kept != (lock.Token{Zxid: 3}) {
			t.Errorf("%q was read as %v", text, kept)
		}
	}
}
