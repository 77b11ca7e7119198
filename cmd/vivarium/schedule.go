package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/backup/schedule"
)

// backupEnd is how long a stop waits for a backup under way to end. A disk that hangs must not keep
// the process.
const backupEnd = 5 * time.Second

// startBackups makes backups until ctx ends, if c is not nil. wait waits for the end after that.
func startBackups(ctx context.Context, node *embed.Node, c *schedule.Config, log *slog.Logger) (wait func(), err error) {
	if c == nil {
		return func() {}, nil
	}
	config := *c
	config.Logger = log
	s, err := schedule.New(node, config)
	if err != nil {
		return nil, err
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := s.Run(ctx); ctx.Err() == nil {
			log.Error("no more backups are made", "cause", err)
		}
	}()
	return func() {
		select {
		case <-ended:
		case <-time.After(backupEnd):
			log.Warn("a backup has not ended", "dir", config.Dir)
		}
	}, nil
}
