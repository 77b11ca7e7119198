//go:build unix && nomembers

package main

import (
	"context"

	"github.com/vivarium-go/vivarium/bench/campaign"
	"github.com/vivarium-go/vivarium/embed"
)

// Members that stay as they are have no forced recovery.
var recoverDir func(context.Context, campaign.Home, []embed.MemberID) error
