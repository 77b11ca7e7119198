package schedule_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/backup/schedule"
)

// A service makes a backup every hour, and the first one at once.
func Example() {
	dir, err := os.MkdirTemp("", "schedule")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	node, err := embed.Start(embed.Config{Dir: filepath.Join(dir, "data")})
	if err != nil {
		log.Fatal(err)
	}
	defer node.Close()
	backups := filepath.Join(dir, "backups")
	if err := os.Mkdir(backups, 0o700); err != nil {
		log.Fatal(err)
	}
	s, err := schedule.New(node, schedule.Config{
		Dir: backups, Every: time.Hour, Keep: schedule.Keep{Hourly: 24, Daily: 7},
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go s.Run(ctx)

	// A member that leads, as this one does, leaves half a minute to others.
	for sample := range s.Samples() {
		if sample.Name == "vivarium_backup_failures_total" {
			fmt.Println("failures:", sample.Value)
		}
	}
	// Output: failures: 0
}
