//go:build linux

package main

import "github.com/vivarium-go/vivarium/bench/internal/bare"

// dragonboat is an ensemble of dragonboat alone. It is the floor: a write is a proposal to a state
// machine that does nothing.
type dragonboat struct {
	selfContained
	e *bare.Ensemble
}

func startDragonboat(p place) (ensemble, error) {
	if len(p.Here) != len(p.Addrs) {
		return nil, errMissing
	}
	e, err := bare.StartTan(p.Dir, len(p.Here), 1)
	if err != nil {
		return nil, err
	}
	return dragonboat{e: e}, nil
}

func (d dragonboat) leader() (int, error) { return d.e.Leader(0) }

func (d dragonboat) entries() (uint64, error) { return d.e.Applied(), nil }

func (d dragonboat) open(member int) (session, error) { return proposer{d: d, member: member}, nil }

func (d dragonboat) close() { d.e.Close() }

type proposer struct {
	writesOnly
	d      dragonboat
	member int
}

func (p proposer) set(string) (op, error) { return p.d.e.Proposer(p.member, 0, payload), nil }
