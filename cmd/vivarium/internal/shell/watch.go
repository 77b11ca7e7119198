package shell

import (
	"context"
	"strings"

	"github.com/vivarium-go/vivarium/internal/wire"
)

const addWatchUsage = "[-m mode] path # optional mode is one of [PERSISTENT, PERSISTENT_RECURSIVE] - default is PERSISTENT_RECURSIVE"

func (s *shell) addWatch(ctx context.Context, a *args) error {
	o := at(wire.OpAddWatch, a.words[1])
	switch strings.ToUpper(a.value("m")) {
	case "PERSISTENT":
		o.Mode = wire.WatchPersistent
	case "PERSISTENT_RECURSIVE":
		o.Mode = wire.WatchRecursive
	default:
		if a.has("m") {
			return usage("addWatch %s", addWatchUsage)
		}
		o.Mode = wire.WatchRecursive
	}
	if len(a.words) > 2 {
		return usage("addWatch %s", addWatchUsage)
	}
	_, err := s.call(ctx, o)
	return err
}

func (s *shell) removewatches(ctx context.Context, a *args) error {
	kind := wire.KindAny
	for _, f := range []struct {
		flag string
		kind wire.WatchKind
	}{{"r", wire.KindRecursive}, {"p", wire.KindPersistent}, {"d", wire.KindData}, {"c", wire.KindChildren}} { // the last flag that is set wins
		if a.has(f.flag) {
			kind = f.kind
		}
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	return s.zk.RemoveWatches(ctx, a.words[1], kind, a.has("l"))
}
