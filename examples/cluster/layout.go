package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"net/url"
	"strconv"
	"strings"

	"github.com/vivarium-go/vivarium/embed"
)

// The znodes:
//
//	/pool/workers/2-0000000007     a process that takes orders (ephemeral)
//	/pool/todo/2/000041            order 41 is for process 2 to settle; holds the order
//	/pool/next                     the number of the next order to distribute
//	/dispatcher                    the election of the dispatcher
//	/branch-5/locks/account-A07    the lock of an account; every account belongs to a branch
//	/branch-5/done/000041          order 41 is settled and recorded; holds the process that recorded it
//
// The first component of a path decides on which shard it is, and a transaction changes one shard.
// So everything that the dispatcher decides is below /pool. An account's lock is in the same branch
// as the records made under it. The branches spread over the shards; the number of shards changes
// nothing here.
const (
	poolPath       = "/pool"
	workersPath    = "/pool/workers"
	todoPath       = "/pool/todo"
	nextPath       = "/pool/next"
	dispatcherPath = "/dispatcher"
	branches       = 8
)

func todoOf(process int) string { return todoPath + "/" + strconv.Itoa(process) }

func branchPath(n int) string { return "/branch-" + strconv.Itoa(n) }

// branchOf returns the path of an account's branch.
func branchOf(account string) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(account)) // it never fails
	return branchPath(int(h.Sum32() % branches))
}

// lockPath escapes the account, which may be any text. The prefix keeps "." and ".." from being a
// name.
func lockPath(account string) string {
	return branchOf(account) + "/locks/account-" + url.PathEscape(account)
}

// donePath returns the mark of an account's order.
func donePath(account, name string) string { return branchOf(account) + "/done/" + name }

// key returns the name of the n-th order.
func key(n int) string { return fmt.Sprintf("%06d", n) }

// layOut creates the znodes that are always there. Every process does it; the first one succeeds.
func layOut(ctx context.Context, s *embed.Session) error {
	paths := []string{poolPath, workersPath, todoPath, nextPath}
	for p := 1; p <= processesMax; p++ {
		paths = append(paths, todoOf(p))
	}
	for b := range branches {
		paths = append(paths, branchPath(b), branchPath(b)+"/done")
	}
	for _, path := range paths {
		if _, err := s.Create(ctx, path, []byte("0"), embed.Persistent); err != nil && !errors.Is(err, embed.ErrNodeExists) {
			return err
		}
	}
	return nil
}

// join shows in the pool that a process takes orders, as long as its session lasts. The name is
// sequential, because the znode of the process's last session may still exist.
func join(ctx context.Context, s *embed.Session, process int) error {
	_, err := s.Create(ctx, workersPath+"/"+strconv.Itoa(process)+"-", nil, embed.EphemeralSequential)
	return err
}

// joined returns the processes that take orders.
func joined(ctx context.Context, s *embed.Session) (map[int]bool, error) {
	names, _, err := s.Children(ctx, workersPath)
	if err != nil {
		return nil, err
	}
	in := make(map[int]bool)
	for _, name := range names {
		number, _, _ := strings.Cut(name, "-")
		p, err := strconv.Atoi(number)
		if err != nil {
			return nil, fmt.Errorf("%s/%s: %w", workersPath, name, err)
		}
		in[p] = true
	}
	return in, nil
}

// readOrder reads an order from its znode. ok is false if the znode is gone.
func readOrder(ctx context.Context, s *embed.Session, path string) (o order, ok bool, err error) {
	data, _, err := s.Get(ctx, path)
	if errors.Is(err, embed.ErrNoNode) {
		return order{}, false, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &o)
	}
	return o, err == nil, err
}

// recorded returns how many orders are marked as done, as this process's replica shows.
func recorded(ctx context.Context, s *embed.Session) (n int, err error) {
	for b := range branches {
		stat, _, err := s.Exists(ctx, branchPath(b)+"/done")
		if err != nil {
			return 0, err
		}
		n += int(stat.NumChildren)
	}
	return n, nil
}
