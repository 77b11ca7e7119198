//go:build unix

package main

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"

	"github.com/vivarium-go/vivarium/bench/internal/measure"
	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/engine"
	"github.com/vivarium-go/vivarium/internal/testkit/child"
)

// vivarium is an ensemble of Vivarium with a session on each member.
type vivarium struct {
	nodes    []*embed.Node
	sessions []*embed.Session
	parents  []string // by shard - 1: a znode on the shard
	made     int      // how many writers have a znode
}

func startVivarium(dir string, shards int) (ensemble, error) {
	v := &vivarium{parents: make([]string, shards)}
	if err := v.start(dir, shards); err != nil {
		v.close()
		return nil, err
	}
	return v, nil
}

func (v *vivarium) start(dir string, shards int) error {
	addrs, err := child.FreeAddrs(members)
	if err != nil {
		return err
	}
	peers := make(map[embed.MemberID]string)
	for i, addr := range addrs {
		peers[embed.MemberID(i+1)] = addr
	}
	for id := embed.MemberID(1); id <= members; id++ {
		n, err := embed.Start(embed.Config{Dir: filepath.Join(dir, fmt.Sprint(id)), ID: id, Members: peers, Shards: shards,
			Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			return err
		}
		v.nodes = append(v.nodes, n)
	}
	ctx := context.Background()
	for _, n := range v.nodes {
		if err := n.Ready(ctx); err != nil {
			return err
		}
		s, err := n.NewSession(ctx, embed.SessionOptions{})
		if err != nil {
			return err
		}
		v.sessions = append(v.sessions, s)
	}
	if err := v.spread(); err != nil {
		return err
	}
	return v.plant()
}

// spread transfers the leaderships now, instead of waiting until the members balance them.
func (v *vivarium) spread() error {
	return measure.Until("the leaderships to be spread", func() bool {
		all := true
		for _, n := range v.nodes {
			for i, s := range n.Status().Shards {
				if want := embed.MemberID(i%members + 1); s.Leader != want {
					all = false
					// the next attempt follows if this one fails
					_ = n.TransferLeadership(s.Shard, want)
				}
			}
		}
		return all
	})
}

// plant creates a znode below the root on each shard.
func (v *vivarium) plant() error {
	for i, found := 0, 0; found < len(v.parents); i++ {
		name := fmt.Sprintf("/app%d", i)
		parent := &v.parents[engine.ShardOf(name, len(v.parents))-1]
		if *parent != "" {
			continue
		}
		if _, err := v.sessions[0].Create(context.Background(), name, nil, embed.Persistent); err != nil {
			return err
		}
		*parent = name
		found++
	}
	return nil
}

func (v *vivarium) writer(i int) (func() error, error) {
	shard := i % len(v.parents)
	s := v.sessions[shard%members]
	path, data := fmt.Sprintf("%s/w%d", v.parents[shard], i), make([]byte, payload)
	if i >= v.made {
		if _, err := s.Create(context.Background(), path, data, embed.Persistent); err != nil {
			return nil, err
		}
		v.made++
	}
	return func() error {
		_, err := s.Set(context.Background(), path, data, embed.AnyVersion)
		return err
	}, nil
}

func (v *vivarium) entries() (sum uint64) {
	for _, s := range v.nodes[0].Status().Shards {
		sum += s.Applied
	}
	return sum
}

func (v *vivarium) close() {
	for _, n := range v.nodes {
		_ = n.Close() // whatever the error is: the directory is removed
	}
}
