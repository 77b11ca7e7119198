package schedule

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/backup"
	"github.com/vivarium-go/vivarium/embed/internal/queue"
	"github.com/vivarium-go/vivarium/embed/internal/sampling"
	"github.com/vivarium-go/vivarium/embed/internal/sessions"
	"github.com/vivarium-go/vivarium/embed/lock"
	"github.com/vivarium-go/vivarium/embed/metrics"
	"github.com/vivarium-go/vivarium/internal/meter"
)

const (
	lockPath = "/zookeeper/vivarium/backup/lock"
	lastPath = "/zookeeper/vivarium/backup/last"

	// lookPause is how long a timer is trusted before the clock and the record are looked at again.
	lookPause = 10 * time.Second
	// leaderPause is what a member that leads leaves to the others, or half of Every.
	leaderPause = 30 * time.Second
	// clockSlack is how much the clocks of members may differ without a word.
	clockSlack = 5 * time.Second
	// failurePause is how long a member waits after a failure, or half of Every.
	failurePause = 5 * time.Minute
)

// A Schedule makes backups on one member. Its methods may be called by any number of goroutines,
// but Run only once.
type Schedule struct {
	// Immutable.
	node  *embed.Node
	c     Config
	clock func() time.Time
	write func(ctx context.Context, w io.Writer) error

	// Owned by Run. The times are of the monotonic clock, which is never wrong.
	due     time.Time // when this member first saw the present tick due
	failed  time.Time // when it last failed
	made    time.Time // when it last made a backup
	refused *record   // the last one that was from the future; nil: there was none

	last     atomic.Pointer[record] // the last one that was accepted; nil: none was read yet
	failures meter.Counter
	took     meter.Histogram
}

// A record says what the last backup of the ensemble was. The zero value says that there is none.
type record struct {
	Tick   time.Time      `json:"tick"` // a multiple of Every
	Time   time.Time      `json:"time"` // when it was done
	Member embed.MemberID `json:"member"`
	File   string         `json:"file"`
	Size   int64          `json:"size"`
}

// New returns the schedule of a node. Run lets it begin. The error matches
// embed.ErrInvalidArgument.
func New(node *embed.Node, c Config) (*Schedule, error) {
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("schedule: %w: %w", embed.ErrInvalidArgument, err)
	}
	c.complete()
	return &Schedule{node: node, c: c, clock: time.Now, write: func(ctx context.Context, w io.Writer) error {
		_, err := node.Backup(ctx, w)
		return err
	}}, nil
}

// Run makes backups until ctx ends, whose error it returns, or the node does, with embed.ErrClosed
// or embed.ErrFailed. It also ends if the ACLs forbid it what is in the package doc's layout, with
// embed.ErrNoAuth. Failed backups do not end it. If a write to the disk hangs, so does Run.
func (s *Schedule) Run(ctx context.Context) error {
	return sessions.Each(ctx, s.node, func(ctx context.Context, session *embed.Session) error {
		for session.Err() == nil && ctx.Err() == nil {
			err := s.turn(ctx, session)
			if err := sessions.Final(err, lock.ErrLockExhausted); err != nil {
				return err
			}
			if err != nil && !sessions.Pause(ctx) {
				return nil
			}
		}
		return nil
	})
}

// turn waits until a backup is due for this member, or a part of that time, and makes it.
func (s *Schedule) turn(ctx context.Context, session *embed.Session) error {
	wait, _, err := s.look(ctx, session)
	if err != nil {
		return err
	}
	if wait > 0 {
		select {
		case <-time.After(min(wait, lookPause)):
		case <-ctx.Done():
		}
		return nil
	}
	hold, err := lock.NewMutex(session, lockPath).Lock(ctx)
	if err != nil {
		return err
	}
	defer hold.Release() // if it cannot be sent, the node keeps trying
	life, cancel := queue.Both(ctx, hold.Context())
	defer cancel()
	// Whoever had the lock before may have made it.
	wait, tick, err := s.look(life, session)
	if err != nil || wait > 0 {
		return err
	}
	return s.make(life, session, tick)
}

// look returns how long this member has to wait, and the tick that is due if that is zero.
func (s *Schedule) look(ctx context.Context, session *embed.Session) (wait time.Duration, tick time.Time, err error) {
	r, err := read(ctx, session)
	if err != nil {
		return 0, tick, err
	}
	now := s.clock().UTC().Round(0)
	r = s.accept(r, now)
	if tick = now.Truncate(s.c.Every); !tick.After(r.Tick) {
		wait = r.Tick.Add(s.c.Every).Sub(now)
	}
	if wait > 0 {
		s.due = time.Time{}
		return wait, tick, nil
	}
	if s.due.IsZero() {
		s.due = time.Now()
	}
	if s.leads() {
		wait = min(leaderPause, s.c.Every/2) - time.Since(s.due)
	}
	if !s.failed.IsZero() {
		wait = max(wait, min(failurePause, s.c.Every/2)-time.Since(s.failed))
	}
	if !s.made.IsZero() { // however often the record of others is too old for this clock
		wait = max(wait, s.c.Every/2-time.Since(s.made))
	}
	return max(wait, 0), tick, nil
}

// accept returns the record that counts: r, unless it was from the future when it was first read.
// Such a record is refused for good, also when its time has come: a wrong clock, or whoever wrote it,
// would put all backups off. Then the one before it counts.
func (s *Schedule) accept(r *record, now time.Time) *record {
	last := s.last.Load()
	switch {
	case s.refused != nil && *r == *s.refused:
	case !r.Tick.After(now.Add(clockSlack)):
		s.last.Store(r)
		return r
	default:
		s.refused = r
		s.c.Logger.Warn("the record of the last backup is refused, because it is from the future", "member", r.Member, "time", r.Time, "file", r.File)
	}
	if last == nil {
		last = new(record)
	}
	return last
}

// leads reports whether this member leads a shard.
func (s *Schedule) leads() bool {
	status := s.node.Status()
	for _, shard := range status.Shards {
		if status.Leading(shard) {
			return true
		}
	}
	return false
}

// read returns the record. One that cannot be read is as good as none: the next one replaces it.
func read(ctx context.Context, session *embed.Session) (*record, error) {
	r := new(record)
	data, _, err := session.Get(ctx, lastPath)
	switch {
	case errors.Is(err, embed.ErrNoNode):
		return r, nil
	case err != nil:
		return nil, err
	case json.Unmarshal(data, r) != nil:
		return new(record), nil
	}
	return r, nil
}

// make makes the backup of a tick. A failure is logged, and is no error unless it is final.
func (s *Schedule) make(ctx context.Context, session *embed.Session, tick time.Time) error {
	began := time.Now()
	member := s.node.Status().Member
	name := fileName(s.clock(), member)
	info, err := backup.SaveNew(filepath.Join(s.c.Dir, name), func(w io.Writer) error { return s.write(ctx, w) },
		func(info embed.BackupInfo) string { name = withLineage(name, info.Lineage); return name })
	var end error // what the next write would answer again
	if err == nil {
		r := &record{Tick: tick, Time: s.clock().UTC().Round(0), Member: member, File: name, Size: info.Size}
		if err = write(ctx, session, r); err == nil {
			s.last.Store(r)
		}
		end = sessions.Final(err)
	}
	if ctx.Err() != nil && err != nil {
		return context.Cause(ctx) // stopped, or the lock was lost: not a failure of this member's disk
	}
	if err != nil {
		if info.Size > 0 { // the backup is good, but nobody knows of it: another follows, and old ones must go
			_, _ = retain(s.c.Dir, name, info, s.c.Keep)
		}
		s.failed = time.Now()
		s.failures.Inc()
		s.c.Logger.Error("backup failed", "dir", s.c.Dir, "file", name, "cause", err)
		return end
	}
	s.due, s.failed, s.made = time.Time{}, time.Time{}, time.Now()
	s.took.Observe(time.Since(began))
	deleted, err := retain(s.c.Dir, name, info, s.c.Keep)
	if err != nil {
		s.c.Logger.Warn("old backups were not all deleted", "dir", s.c.Dir, "cause", err)
	}
	s.c.Logger.Info("backup made", "dir", s.c.Dir, "file", name, "znodes", info.Znodes, "bytes", info.Size, "took", time.Since(began), "deleted", deleted)
	return nil
}

// write writes the record. Whoever has lost the lock may replace a newer one, which costs another
// backup.
func write(ctx context.Context, session *embed.Session, r *record) error {
	data, err := json.Marshal(r)
	if err == nil {
		_, err = session.Put(ctx, lastPath, data)
	}
	return err
}

// Samples returns the metrics, read anew at each use. It makes the schedule a metrics.Source.
// docs/metrics.md says what each is for. Samples works at any time, and waits for nobody.
func (s *Schedule) Samples() iter.Seq[metrics.Sample] {
	return sampling.Samples(func(to *sampling.To) {
		if r := s.last.Load(); r != nil {
			at := 0.0
			if !r.Time.IsZero() {
				at = float64(r.Time.Unix())
			}
			to.Gauge("backup_last_success_timestamp_seconds",
				"When the ensemble's last scheduled backup was done, in seconds since 1970. 0: never.", at)
			to.Gauge("backup_last_size_bytes",
				"The size of the ensemble's last scheduled backup.", float64(r.Size))
		}
		to.Histogram("backup_seconds", "How long this member's scheduled backups took, with their verification.", &s.took)
		to.Counter("backup_failures_total", "Scheduled backups of this member that failed.", s.failures.Read())
	})
}
