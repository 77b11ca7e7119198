// Package virtualtime is a job that runs every midnight. Its tests let nights pass in a second.
package virtualtime

import (
	"context"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/job"
)

// A Writer writes the report of a night.
type Writer func(ctx context.Context, night *job.Tick) error

// Nightly writes a report every midnight, UTC, in one of the processes that call it, until ctx or
// the node ends. A night's report is written again if its writer does not live to record it.
func Nightly(ctx context.Context, node *embed.Node, write Writer) error {
	return job.Run(ctx, node, "/nightly", job.Job{
		Name:     "report",
		Schedule: job.Every(24 * time.Hour),
		Crash:    job.AtLeastOnce,
		Run:      write,
	})
}
