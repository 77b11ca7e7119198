//go:build unix

package main

import (
	"context"

	"github.com/vivarium-go/vivarium/bench/campaign"
	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/engine/offline"
)

// recoverDir does what the command vivarium recover does.
func recoverDir(ctx context.Context, h campaign.Home, lost []embed.MemberID) error {
	_, err := offline.Recover(ctx, offline.RecoverOptions{Dir: h.Dir, Stopped: lost, Join: h.Join})
	return err
}
