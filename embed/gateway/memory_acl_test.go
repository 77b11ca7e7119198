package gateway

import (
	"strings"
	"testing"

	"github.com/vivarium-go/vivarium/internal/wire"
)

// An answer counts as what it takes. The ids of an ACL are masked, so each answer has new strings.
func TestMemory_OfAnswersWithLongIDs(t *testing.T) {
	long := strings.Repeat("u", 60_000)
	var a answer
	a.reply.ACL = []wire.ACL{{Perms: wire.PermAll, Scheme: "digest", ID: long}}
	a.reply.Users = []wire.User{{Scheme: "digest", Name: long}}
	if err := a.complete(nil); err != nil || a.bytes < 2*len(long) {
		t.Errorf("%d bytes, %v", a.bytes, err)
	}
}
