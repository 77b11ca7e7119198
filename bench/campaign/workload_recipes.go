package campaign

import (
	"context"
	"fmt"
	"time"

	"github.com/vivarium-go/vivarium/embed"
)

const (
	workersPath = "/workers" // the directory of worker numbers
	namesPath   = "/names"   // the parent of reserved names
	queuePath   = "/queue"   // of tasks
	jobsPath    = "/jobs"
	oncePath    = "/once"  // the parent of what is done once
	partsPath   = "/parts" // the directory of a set's parts
	groupPath   = "/group"
	servicePath = "/services"
	rolloutPath = "/rollout" // the parent of values that are rolled out
	countsPath  = "/counts"  // the parent of counters and values
	swapsPath   = "/swaps"   // the parent of values that are swapped
	idsPath     = "/ids"     // the parent of sequences
	meetPath    = "/meet"    // the parent of barriers
	// countdownsPath is the parent of countdowns
	countdownsPath = "/countdowns"
	// deedsPath has a sequential znode for each task and each tick that is done. It is created in the
	// transaction that says so.
	deedsPath = "/deeds"
)

// startRecipes starts the clients of the recipes that need more than one hold or one session.
func (w *workload) startRecipes(ctx context.Context, id embed.MemberID) {
	w.start(ctx, id, "count", 20*time.Millisecond, 100*time.Millisecond, countStep)
	w.start(ctx, id, "worker", 20*time.Millisecond, 200*time.Millisecond, workerStep)
	w.start(ctx, id, "task", 10*time.Millisecond, 100*time.Millisecond, taskStep)
	w.start(ctx, id, "job", 50*time.Millisecond, 500*time.Millisecond, jobStep)
	w.start(ctx, id, "part", 50*time.Millisecond, 500*time.Millisecond, partStep)
	w.start(ctx, id, "group", 50*time.Millisecond, 500*time.Millisecond, groupStep)
	w.start(ctx, id, "service", 50*time.Millisecond, 500*time.Millisecond, serviceStep)
	w.start(ctx, id, "view", 50*time.Millisecond, 500*time.Millisecond, viewStep)
	w.start(ctx, id, "meet", 50*time.Millisecond, 500*time.Millisecond, (&meetClient{}).step)
}

// aged returns a path that is fresh after each forced recovery.
func (c *client) aged(path string) string { return fmt.Sprintf("%s/%d", path, c.w.age.Load()) }

// fresh returns a path that is fresh in each epoch and after each forced recovery.
func (c *client) fresh(path string) string {
	return fmt.Sprintf("%s-%d", c.aged(path), c.w.epoch.Load())
}

// ofEpoch returns a path that is fresh in each epoch.
func (c *client) ofEpoch(path string) string { return fmt.Sprintf("%s/%d", path, c.w.epoch.Load()) }
