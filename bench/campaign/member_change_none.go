//go:build nomembers

package campaign

import (
	"context"
	"errors"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
)

// The members of a build from before Config.Join stay as they are.

const outText, dismissedText, supersededText = "never out", "never dismissed", "never superseded"

func joining(*embed.Node) string { return "" }

func letGrow(*embed.Config, *start, *embedtest.Faults) {}

func changeMembers(context.Context, *embed.Node, *Request, *Reply) error {
	return errors.New("the members of this build stay as they are")
}
