//go:build linux

package main

import "github.com/vivarium-go/vivarium/bench/internal/bare"

// dragonboat is an ensemble of dragonboat alone. It is the floor: a write is a proposal to a state
// machine that does nothing.
type dragonboat struct {
	selfContained
	e      *bare.Ensemble
	shards int
}

// startBare returns a function that starts dragonboat on one of its logs.
func startBare(start func(dir string, members, shards int) (*bare.Ensemble, error)) func(place) (ensemble, error) {
	return func(p place) (ensemble, error) {
		if len(p.Here) != len(p.Addrs) {
			return nil, errMissing
		}
		shards := max(p.Shards, 1)
		e, err := start(p.Dir, len(p.Here), shards)
		if err != nil {
			return nil, err
		}
		return dragonboat{e: e, shards: shards}, nil
	}
}

func (d dragonboat) leader() (int, error) { return d.e.Leader(0) }

func (d dragonboat) entries() (uint64, error) { return d.e.Applied(), nil }

func (d dragonboat) open(member int) (session, error) { return proposer{d: d, member: member}, nil }

func (d dragonboat) close() { d.e.Close() }

func (d dragonboat) writer(i int) (op, error) {
	shard := i % d.shards
	return d.e.Proposer(shard%members, shard, payload), nil
}

type proposer struct {
	writesOnly
	d      dragonboat
	member int
}

func (p proposer) set(string) (op, error) { return p.d.e.Proposer(p.member, 0, payload), nil }
