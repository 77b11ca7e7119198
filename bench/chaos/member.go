//go:build unix

package main

import (
	"log/slog"
	"os"
	"time"

	"github.com/vivarium-go/vivarium/bench/campaign"
	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/engine/clock"
	"github.com/vivarium-go/vivarium/internal/testkit/child"
)

// memberVariable is the environment variable that makes this program a member of an ensemble.
const memberVariable = "VIVARIUM_CHAOS_MEMBER"

// runMember serves requests until standard input ends, because the parent is gone or wants this
// process to end. Either way the process ends without closing its node.
func runMember() {
	slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelInfo})))
	faults := embedtest.NewFaults()
	m := campaign.NewMember(campaign.Machine{
		Now:     now,
		Faults:  faults,
		Start:   func(cfg embed.Config) (*embed.Node, error) { return embedtest.Start(cfg, faults) },
		Close:   (*embed.Node).Close,
		Recover: recoverDir,
		Log:     os.Stderr,
		Ask:     200 * time.Microsecond,
	})
	child.Serve(m.Serve)
}

// now reads a clock that all processes of the machine share and that nobody sets.
func now() time.Duration { return clock.System().Boot() }
