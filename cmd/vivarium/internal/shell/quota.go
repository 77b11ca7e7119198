package shell

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/vivarium-go/vivarium/cmd/vivarium/internal/client"
	"github.com/vivarium-go/vivarium/internal/wire"
)

// A quota on /a is two znodes below /zookeeper/quota/a. One holds the limits. In the other one, the
// server counts how much there is.
const (
	quotaRoot  = "/zookeeper/quota"
	limitsName = "zookeeper_limits"
	statsName  = "zookeeper_stats"
)

func limitsPath(path string) string { return quotaRoot + path + "/" + limitsName }
func statsPath(path string) string  { return quotaRoot + path + "/" + statsName }

// A track is the data of such a znode: numbers by their names. -1 means none.
type track map[string]int64

// quotaFlags are the flags of quotas, with the names of their numbers.
var quotaFlags = []struct {
	flag, name string
	count      bool // it limits znodes, not bytes
	hard       bool
}{{"n", "count", true, false}, {"b", "bytes", false, false}, {"N", "countHardLimit", true, true}, {"B", "byteHardLimit", false, true}}

func parseTrack(data []byte) (track, error) {
	t := make(track)
	for _, pair := range strings.FieldsFunc(string(data), func(c rune) bool { return c == ',' || c == ';' }) {
		name, value, _ := strings.Cut(pair, "=")
		n, err := strconv.ParseInt(strings.TrimRight(value, "="), 10, 64) // the bytes end in one more "="
		if err != nil {
			return nil, fmt.Errorf("no quota: %q", data)
		}
		t[name] = n
	}
	return t, nil
}

func (t track) get(name string) int64 {
	if n, ok := t[name]; ok {
		return n
	}
	return -1
}

// String returns the form that every version of ZooKeeper reads.
func (t track) String() string {
	text := fmt.Sprintf("count=%d,bytes=%d", t.get("count"), t.get("bytes"))
	sep := "=;"
	for _, name := range slices.Sorted(maps.Keys(t)) {
		if name != "count" && name != "bytes" {
			text += sep + name + "=" + strconv.FormatInt(t[name], 10)
			sep = ";"
		}
	}
	return text
}

func (s *shell) track(ctx context.Context, path string) (track, error) {
	r, err := s.call(ctx, at(wire.OpGetData, path))
	if err != nil {
		return nil, err
	}
	return parseTrack(r.Data)
}

func (s *shell) exists(ctx context.Context, path string) (bool, error) {
	_, err := s.call(ctx, at(wire.OpExists, path))
	if client.CodeOf(err) == wire.NoNode {
		return false, nil
	}
	return err == nil, err
}

// put creates a znode unless it exists.
func (s *shell) put(ctx context.Context, path string, data []byte) error {
	_, err := s.call(ctx, wire.Operation{Op: wire.OpCreate, Path: path, Data: data, ACL: open})
	if client.CodeOf(err) == wire.NodeExists {
		return nil
	}
	return err
}

func (s *shell) listquota(ctx context.Context, a *args) error {
	path := a.words[1]
	s.errorln("absolute path is " + limitsPath(path))
	limits, err := s.track(ctx, limitsPath(path))
	if err == nil {
		s.println("Output quota for " + path + " " + limits.String())
		limits, err = s.track(ctx, statsPath(path))
	}
	switch {
	case client.CodeOf(err) == wire.NoNode:
		s.errorln("quota for " + path + " does not exist.")
		return errSaid
	case err != nil:
		return err
	}
	s.println("Output stat for " + path + " " + limits.String())
	return nil
}

func (s *shell) setquota(ctx context.Context, a *args) error {
	switch _, chroot, _ := client.ParseServers(s.host); {
	case chroot != "":
		return sentence("Quotas are set by whole paths: connect without the chroot " + chroot + ".")
	case len(a.flags) == 0:
		return usage("Missing required option: [-n num soft quota, -b bytes soft quota, -N num hard quota, -B bytes hard quota]")
	case len(a.words) < 2:
		return usage("setquota %s", commands["setquota"].usage)
	case strings.HasPrefix(a.words[1], quotaRoot):
		return usage("cannot set a quota under the path: %s", quotaRoot)
	}
	limits := make(track)
	for _, q := range quotaFlags {
		limits[q.name] = -1
		if !a.has(q.flag) {
			continue
		}
		bits := 64
		if q.count {
			bits = 32
		}
		n, err := strconv.ParseInt(a.value(q.flag), 10, bits)
		switch {
		case err != nil:
			return usage("NumberFormatException happens when parsing the option value")
		case q.count && n < 1:
			return usage("the num quota must be greater than zero")
		case n < 0:
			return usage("the bytes quota must be greater than or equal to zero")
		}
		limits[q.name] = n
	}
	return s.limit(ctx, a.words[1], limits)
}

// limit sets a quota, or adds limits to an existing one. No quota may lie below another.
func (s *shell) limit(ctx context.Context, path string, limits track) error {
	if ok, err := s.exists(ctx, path); err != nil {
		return err
	} else if !ok {
		return sentence(path + " does not exist.")
	}
	if err := s.alone(ctx, path); err != nil {
		return err
	}
	parts := strings.Split(path, "/")
	for i := 2; i <= len(parts); i++ {
		if err := s.put(ctx, quotaRoot+strings.Join(parts[:i], "/"), nil); err != nil {
			return err
		}
	}
	old, err := s.track(ctx, limitsPath(path))
	fresh := client.CodeOf(err) == wire.NoNode
	switch {
	case fresh:
		if err := s.put(ctx, limitsPath(path), []byte(limits.String())); err != nil {
			return err
		}
		if err := s.put(ctx, statsPath(path), []byte(track{"count": 0, "bytes": 0}.String())); err != nil {
			return err
		}
		old = limits
	case err != nil:
		return err
	}
	for name, n := range limits {
		if n > -1 {
			old[name] = n
		}
	}
	used, err := s.track(ctx, statsPath(path))
	if err != nil {
		return err
	}
	s.warn(old, used)
	if fresh {
		return nil
	}
	_, err = s.call(ctx, wire.Operation{Op: wire.OpSetData, Path: limitsPath(path), Data: []byte(old.String()), Version: -1})
	return err
}

// warn prints a warning if there is already more than a quota allows.
func (s *shell) warn(limits, used track) {
	for _, name := range []string{"count", "bytes"} {
		for _, q := range quotaFlags {
			if q.count == (name == "count") && limits.get(q.name) > -1 && limits.get(q.name) < used.get(name) {
				s.println("[Warning]: the " + name + " quota you create is less than the existing " + name + ":" + strconv.FormatInt(used.get(name), 10))
				break
			}
		}
	}
}

// alone returns an error if a quota exists above or below a path.
func (s *shell) alone(ctx context.Context, path string) error {
	err := s.walk(ctx, quotaRoot+path, false, func(at string) error {
		if p, ok := strings.CutSuffix(at, "/"+limitsName); ok && p != quotaRoot+path {
			return fmt.Errorf("%s has a child %s which has a quota", path, strings.TrimPrefix(p, quotaRoot))
		}
		return nil
	})
	if err != nil && client.CodeOf(err) != wire.NoNode {
		return err
	}
	for i := 1; i < len(path); i++ {
		if path[i] != '/' {
			continue
		}
		if ok, err := s.exists(ctx, limitsPath(path[:i])); err != nil {
			return err
		} else if ok {
			return fmt.Errorf("%s has a parent %s which has a quota", path, path[:i])
		}
	}
	return nil
}

func (s *shell) delquota(ctx context.Context, a *args) error {
	path := a.words[1]
	limits, err := s.track(ctx, limitsPath(path))
	if client.CodeOf(err) == wire.NoNode {
		s.println("Quota does not exist for " + path)
		return nil
	} else if err != nil {
		return err
	}
	for _, q := range quotaFlags {
		if a.has(q.flag) {
			limits[q.name] = -1
		}
	}
	if len(a.flags) > 0 {
		_, err := s.call(ctx, wire.Operation{Op: wire.OpSetData, Path: limitsPath(path), Data: []byte(limits.String()), Version: -1})
		return err
	}
	for _, p := range []string{limitsPath(path), statsPath(path)} {
		if _, err := s.call(ctx, at(wire.OpDelete, p)); err != nil && client.CodeOf(err) != wire.NoNode {
			return err
		}
	}
	for p := quotaRoot + path; p != quotaRoot; p = p[:strings.LastIndexByte(p, '/')] { // delete their parents that are empty now
		if _, err := s.call(ctx, at(wire.OpDelete, p)); client.CodeOf(err) == wire.NotEmpty {
			return nil
		} else if err != nil {
			return err
		}
	}
	return nil
}
