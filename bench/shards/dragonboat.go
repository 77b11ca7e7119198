//go:build unix

package main

import "github.com/vivarium-go/vivarium/bench/internal/bare"

// dragonboat is an ensemble of dragonboat alone.
type dragonboat struct {
	e      *bare.Ensemble
	shards int
}

func startBare(start func(dir string, members, shards int) (*bare.Ensemble, error)) func(dir string, shards int) (ensemble, error) {
	return func(dir string, shards int) (ensemble, error) {
		e, err := start(dir, members, shards)
		if err != nil {
			return nil, err
		}
		return dragonboat{e, shards}, nil
	}
}

func (d dragonboat) writer(i int) (func() error, error) {
	shard := i % d.shards
	return d.e.Proposer(shard%members, shard, payload), nil
}

func (d dragonboat) entries() uint64 { return d.e.Applied() }

func (d dragonboat) close() { d.e.Close() }
