package queue

import (
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
)

// The words of a name stand between its uuid and its kind. The key of its place may look like a
// delay.
func TestWord(t *testing.T) {
	const uuid = "d0112233-d455-d677-d899-daabbccddeef"
	for name, want := range map[string]struct {
		delay    time.Duration
		priority int
		place    embed.Zxid
	}{
		"_c_" + uuid + "-latch-0000000007":                                                        {},
		"_c_" + uuid + "-p3-d20-z5-latch-0000000007":                                              {delay: 20 * time.Millisecond, priority: 3, place: 5},
		"_c_" + uuid + "-d20-__WRIT__0000000007":                                                  {delay: 20 * time.Millisecond},
		"~u_99000000-d003" + uuid[keyLen:] + "-latch-000000000699000000-d0030000000006":           {},
		"~u_99000000-d003" + uuid[keyLen:] + "-p9-d20-z5-latch-000000000699000000-d0030000000006": {delay: 20 * time.Millisecond, priority: 9, place: 5},
		"~u_99000000-d003" + uuid[keyLen:] + "-p9-0000000006":                                     {}, // too short for a key
		"d0112233-p3-0000000007":                                                                  {},
	} {
		place, _ := Order(name, 0)
		if delayOf(name) != want.delay || Priority(name) != want.priority || place != want.place {
			t.Errorf("%s: delay %v, priority %d, place %d; want %v", name, delayOf(name), Priority(name), place, want)
		}
	}
}

// Other sequential znodes, whose names happen to end as a kind's word does, are no contenders.
func TestWord_OfKind(t *testing.T) {
	const uuid = "d0112233-d455-d677-d899-daabbccddeef"
	for name, want := range map[string]string{
		"_c_" + uuid + "-lock-0000000007":                                                         "lock-",
		"_c_d0112233d455d677d899daabbccddeef-lock-0000000007":                                     "lock-", // go-zookeeper
		"_c_" + uuid + "-d20-up-lock-0000000007":                                                  "lock-",
		"_c_" + uuid + "-lease-0000000007":                                                        "lease-",
		"_c_" + uuid + "-__READ__0000000007":                                                      "__READ__",
		"_c_" + uuid + "-d20-__WRIT__0000000007":                                                  "__WRIT__",
		"~u_99000000-d003" + uuid[keyLen:] + "-p9-d20-z5-latch-000000000699000000-d0030000000006": "latch-",
		"d0112233d455d677d899daabbccddeef__lock__0000000007":                                      "__lock__",
		"d0112233d455d677d899daabbccddeef__rlock__0000000007":                                     "__rlock__",
		"lock-0000000007":    "lock-", // of clients that do not protect their creations
		"block-0000000007":   "",
		"unlock-0000000007":  "",
		"release-0000000007": "",
		"my-lock-0000000007": "",
		"_c_lock-0000000007": "",
		"lock-1":             "",
		"0000000007":         "",
	} {
		if got := Word(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}
