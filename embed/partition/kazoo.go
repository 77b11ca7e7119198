package partition

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/internal/queue"
)

// kazooName returns a name for the znode of a member of kazoo's ShallowParty.
func kazooName(id string) string {
	var b [16]byte
	rand.Read(b[:]) // never fails
	return fmt.Sprintf("%x-%s", b, id)
}

// kazooID returns the identifier in a name, as kazoo reads it: what follows the first hyphen, or all
// if there is none.
func kazooID(name string) string { return name[strings.IndexByte(name, '-')+1:] }

// kazooOther returns the path of a member with an identifier, or nothing.
func kazooOther(ctx context.Context, s *embed.Session, party, id string) (string, error) {
	names, _, err := s.Children(ctx, party)
	if errors.Is(err, embed.ErrNoNode) {
		return "", nil
	}
	for _, name := range names {
		if kazooID(name) == id {
			return queue.Child(party, name), nil
		}
	}
	return "", err
}

// kazooParts returns the parts of a member as kazoo's SetPartitioner computes them: each member
// takes one of the sorted parts in turn.
func kazooParts(id string, members []member, parts []string) (own []string) {
	ids := make([]string, len(members))
	for i, m := range members {
		ids[i] = m.id
	}
	slices.Sort(ids)
	i := slices.Index(ids, id)
	if i < 0 {
		return nil
	}
	for ; i < len(parts); i += len(ids) {
		own = append(own, parts[i])
	}
	return own
}
