package shell

import (
	"context"
	"strings"

	"github.com/vivarium-go/vivarium/internal/wire"
)

// parseACL parses "scheme:id:perms,...". It prints what it cannot parse, and leaves that out.
func (s *shell) parseACL(text string) []wire.ACL {
	acl := []wire.ACL{}
	for entry := range strings.SplitSeq(strings.TrimRight(text, ","), ",") {
		first, last := strings.IndexByte(entry, ':'), strings.LastIndexByte(entry, ':')
		if first == last {
			s.errorln(entry + " does not have the form scheme:id:perm")
			continue
		}
		one := wire.ACL{Scheme: entry[:first], ID: entry[first+1 : last]}
		for _, letter := range entry[last+1:] {
			known := false
			for _, l := range letters {
				if rune(l.letter) == letter {
					one.Perms |= l.perm
					known = true
				}
			}
			if !known {
				s.errorln("Unknown perm type: " + string(letter))
			}
		}
		acl = append(acl, one)
	}
	return acl
}

func (s *shell) getACL(ctx context.Context, a *args) error {
	r, err := s.call(ctx, at(wire.OpGetACL, a.words[1]))
	if err != nil {
		return err
	}
	for _, one := range r.ACL {
		s.printf("'%s,'%s\n: %s\n", one.Scheme, one.ID, perms(one.Perms))
	}
	if a.has("s") {
		s.stat(&r.Stat)
	}
	return nil
}

func (s *shell) setACL(ctx context.Context, a *args) error {
	o := at(wire.OpSetACL, a.words[1])
	version, err := a.number("v", 32, -1)
	if err != nil {
		return err
	}
	o.ACL, o.Version = s.parseACL(a.words[2]), int32(version)
	if !a.has("R") {
		r, err := s.call(ctx, o)
		if err == nil && a.has("s") {
			s.stat(&r.Stat)
		}
		return err
	}
	failed := false
	err = s.walk(ctx, o.Path, false, func(path string) error {
		o.Path = path
		if _, err := s.call(ctx, o); err != nil {
			if ctx.Err() != nil {
				return err
			}
			s.errorln(describe(err))
			failed = true
		}
		return nil
	})
	if err == nil && failed {
		return errSaid
	}
	return err
}

func (s *shell) addauth(ctx context.Context, a *args) error {
	var proof []byte
	if len(a.words) > 2 {
		proof = []byte(a.words[2])
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	return s.zk.AddAuth(ctx, a.words[1], proof)
}

func (s *shell) whoami(ctx context.Context, _ *args) error {
	r, err := s.call(ctx, wire.Operation{Op: wire.OpWhoAmI})
	if err != nil {
		return err
	}
	s.println("Auth scheme: User")
	for _, u := range r.Users {
		s.println(u.Scheme + ": " + u.Name)
	}
	return nil
}
