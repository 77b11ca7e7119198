package campaign

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"math/rand/v2"
	"slices"
	"strconv"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/claim"
)

// use executes the calls that need a session.
func (m *Member) use(ctx context.Context, n opener, s *embed.Session, q *Request, r *Reply) (err error) {
	switch q.Call {
	case callClose:
		return m.closeSession(s, q.Session)
	case callCreate:
		r.Path, r.Stat, err = s.CreateWith(ctx, q.Path, []byte(q.Data), embed.CreateOptions{Mode: embed.CreateMode(q.Mode), TTL: stretch(q.TTL)})
	case callSet:
		r.Stat, err = s.Set(ctx, q.Path, []byte(q.Data), q.Version)
	case callDelete:
		err = s.Delete(ctx, q.Path, q.Version)
	case callBreak:
		_, err = s.Multi(ctx, claim.OpCheckCzxid(q.Path, q.Czxid), embed.OpDelete(q.Path, embed.AnyVersion))
	case callGet:
		err = get(ctx, s, q.Path, r)
	case callSyncGet:
		if r.Zxid, err = s.Sync(ctx, q.Path); err == nil {
			err = get(ctx, s, q.Path, r)
		}
	case callList:
		if _, err = s.Sync(ctx, q.Path); err == nil {
			r.Names, _, err = s.Children(ctx, q.Path)
		}
	case callPay:
		err = pay(ctx, s, q.Path, q.Data, r)
	case callBulk:
		err = m.bulk(ctx, s, q.Path, q.Count)
	case callStorm:
		err = m.storm(ctx, s, q, r)
	case callWalk:
		err = walk(ctx, nodeOf(n), s, q.Full, r)
	case callSection:
		err = m.section(ctx, n, s, q)
	case callLead:
		err = m.lead(ctx, n, s, q)
	case callBalance:
		err = m.balance(ctx, n, s, q)
	case callResize:
		err = resize(ctx, s, q)
	case callRevoke:
		err = revoke(ctx, s, q.Path)
	case callAcquire:
		err = acquireBriefly(ctx, s, q)
	case callObserve:
		err = m.observe(ctx, s, q)
	case callWatch:
		err = m.watch(ctx, n, s, q, r)
	default:
		err = m.play(ctx, n, s, q, r)
	}
	return err
}

func get(ctx context.Context, s *embed.Session, path string, r *Reply) error {
	data, stat, err := s.Get(ctx, path)
	r.Data, r.Stat = string(data), stat
	return err
}

const (
	bankPath = "/bank"
	accounts = 4
)

func account(area string, i int) string { return area + bankPath + "/" + strconv.Itoa(i) }

// pay moves one from one account of the log's area to another and records the payment under an id.
// It does so in one transaction, which succeeds only if nobody else came first. what holds the id
// and the accounts: "id from to".
func pay(ctx context.Context, s *embed.Session, log, what string, r *Reply) error {
	var id string
	var from, to int
	if _, err := fmt.Sscan(what, &id, &from, &to); err != nil {
		return err
	}
	// After a stale read, the transaction would be refused for its version again and again.
	if _, err := s.Sync(ctx, log); err != nil {
		return fmt.Errorf("%w: %w", embed.ErrUnavailable, err)
	}
	debit, err := move(ctx, s, account(areaOf(log), from), -1)
	if err != nil {
		return fmt.Errorf("%w: %w", embed.ErrUnavailable, err)
	}
	credit, err := move(ctx, s, account(areaOf(log), to), 1)
	if err != nil {
		return fmt.Errorf("%w: %w", embed.ErrUnavailable, err)
	}
	results, err := s.Multi(ctx, debit, embed.OpCreate(log, []byte(what), embed.Sequential), credit)
	if err == nil {
		r.Path, r.Stat = results[1].Path, results[1].Stat
	}
	return err
}

// move returns the op that changes an account from its present balance.
func move(ctx context.Context, s *embed.Session, path string, by int) (embed.Op, error) {
	data, stat, err := s.Get(ctx, path)
	if err != nil {
		return embed.Op{}, err
	}
	balance, err := strconv.Atoi(string(data))
	if err != nil {
		return embed.Op{}, err
	}
	return embed.OpSet(path, strconv.AppendInt(nil, int64(balance+by), 10), stat.Version), nil
}

const (
	bulkBytes  = 1 << 20
	bulkFew    = 100 // where Machine.Compact cuts the log
	bulkWindow = 4   // sets in flight at a time
)

// bulk sets a znode to many bytes again and again, until the log that a lagging member would need
// is gone.
func (m *Member) bulk(ctx context.Context, s *embed.Session, path string, count int) error {
	data := make([]byte, bulkBytes)
	if m.Compact != nil {
		data = data[:bulkFew]
		defer m.Compact()
	}
	var window []*embed.Pending
	var failed error
	for i := range count {
		data[i%len(data)] = byte(rand.Uint32()) // so that no two are the same
		window = append(window, s.Submit(ctx, embed.OpSet(path, data, embed.AnyVersion)))
		if len(window) == bulkWindow || i == count-1 {
			for _, p := range window {
				_, err := p.Result()
				failed = errors.Join(failed, err)
			}
			window = window[:0]
		}
		if failed != nil {
			return failed
		}
	}
	return nil
}

// errMoved says that somebody wrote during a walk.
var errMoved = fmt.Errorf("%w: the tree has changed meanwhile", embed.ErrUnavailable)

// synced returns, by shard, the zxids that reads show at least after a Sync.
func synced(ctx context.Context, n *embed.Node, s *embed.Session) ([]embed.Zxid, error) {
	if _, err := s.Sync(ctx, "/"); err != nil {
		return nil, err
	}
	return zxids(n), nil
}

// shown returns, by shard, zxids that reads of a session show at least. Nobody but its member knows
// what the reads of a remote session show, so shown asks it for each shard.
func (m *Member) shown(ctx context.Context, n opener, s *embed.Session) (all []embed.Zxid, err error) {
	if node := nodeOf(n); node != nil {
		return zxids(node), nil
	}
	for _, area := range areasOf(m.shards) {
		z, err := s.Sync(ctx, area)
		if err != nil {
			return nil, err
		}
		all = append(all, z)
	}
	return all, nil
}

// zxids returns, by shard, the zxids that reads show.
func zxids(n *embed.Node) (all []embed.Zxid) {
	for _, shard := range n.Status().Shards {
		all = append(all, shard.Zxid)
	}
	return all
}

// walk visits every znode between two Syncs that agree.
func walk(ctx context.Context, n *embed.Node, s *embed.Session, full bool, r *Reply) (err error) {
	if r.Zxids, err = synced(ctx, n, s); err != nil {
		return err
	}
	digests := make([]hash.Hash, len(r.Zxids))
	for i := range digests {
		digests[i] = sha256.New()
	}
	var visit func(path string) error
	visit = func(path string) error {
		data, stat, err := s.Get(ctx, path)
		if err != nil {
			return err
		}
		e := entry{Path: path, Data: string(data), Stat: stat}
		_ = json.NewEncoder(digests[placeOf(path, len(digests))]).Encode(e)
		if len(data) == bulkBytes {
			e.Data = "" // the digest covers it
		}
		if full {
			r.Tree = append(r.Tree, e)
		}
		names, _, err := s.Children(ctx, path)
		if err != nil {
			return err
		}
		if path == "/" {
			path = ""
		}
		for _, name := range names {
			if err := visit(path + "/" + name); err != nil {
				return err
			}
		}
		return nil
	}
	if err := visit("/"); errors.Is(err, embed.ErrNoNode) {
		return errMoved
	} else if err != nil {
		return err
	}
	for _, digest := range digests {
		r.Digests = append(r.Digests, fmt.Sprintf("%x", digest.Sum(nil)[:8]))
	}
	after, err := synced(ctx, n, s)
	if err == nil && !slices.Equal(after, r.Zxids) {
		err = errMoved
	}
	return err
}
