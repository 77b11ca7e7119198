package schedule

import (
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// A Config says where, when and for how long. Dir is required. The yaml tags are the keys of a
// config file.
type Config struct {
	// Dir is the directory for the backups. It must exist: otherwise a volume that is not mounted
	// would not be noticed.
	Dir string `yaml:"dir"`
	// Every is the time between two backups, at least a minute. Zero means an hour.
	Every time.Duration `yaml:"every"`
	// Keep says which backups to keep. The zero value means 24 hourly, 7 daily and 4 weekly.
	Keep Keep `yaml:"keep"`
	// Logger gets a line for each backup and for each failure. Nil means slog.Default().
	Logger *slog.Logger `yaml:"-"`
}

// Keep says which backups to keep: of each of the last hours, days and weeks that have backups, the
// newest one. Days and weeks begin at midnight in UTC, and weeks on Mondays. The newest backup is
// always kept. Each number is from 0 to 1000.
type Keep struct {
	Hourly int `yaml:"hourly"`
	Daily  int `yaml:"daily"`
	Weekly int `yaml:"weekly"`
}

// Defaults of a Config.
const (
	DefaultEvery = time.Hour
	everyMin     = time.Minute
	keepMax      = 1000
)

var keepDefault = Keep{Hourly: 24, Daily: 7, Weekly: 4}

// Validate returns an error that lists every problem.
func (c Config) Validate() error {
	var list []error
	wrong := func(format string, args ...any) {
		list = append(list, fmt.Errorf(format, args...))
	}
	if c.Dir == "" {
		wrong("Dir is empty")
	}
	if c.Every != 0 && c.Every < everyMin {
		wrong("Every is %v, less than %v", c.Every, everyMin)
	}
	for _, k := range []struct {
		name string
		n    int
	}{{"Hourly", c.Keep.Hourly}, {"Daily", c.Keep.Daily}, {"Weekly", c.Keep.Weekly}} {
		if k.n < 0 || k.n > keepMax {
			wrong("Keep.%s is %d, not from 0 to %d", k.name, k.n, keepMax)
		}
	}
	return errors.Join(list...)
}

// complete replaces what is zero.
func (c *Config) complete() {
	if c.Every == 0 {
		c.Every = DefaultEvery
	}
	if c.Keep == (Keep{}) {
		c.Keep = keepDefault
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
}
