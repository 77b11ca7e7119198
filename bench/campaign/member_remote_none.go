//go:build noclients

package campaign

import (
	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/election"
)

// In a build from before package client, only the process's node opens sessions.

type opener = *embed.Node

func newRemote([]string, *wires) (opener, error) { return nil, nil }

func nodeOf(o opener) *embed.Node { return o }

func sessionOf(_ *election.Leadership, s *embed.Session) *embed.Session { return s }
