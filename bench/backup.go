//go:build linux

package main

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"time"

	"github.com/vivarium-go/vivarium/embed/backup"
)

// The lines of suite backup: writers without a backup, and beside one after the other.
const (
	onAlone  = "alone"
	onBackup = "backup"
)

// backupZnodes is how many znodes a backup has.
const backupZnodes = 100_000

// measureBackup measures writers on all members, while a follower makes one backup after the other
// to a file, or without that.
func measureBackup(w *worker, l line) (figures, error) {
	v, ok := w.e.(*vivarium)
	if !ok {
		return figures{}, errMissing
	}
	if err := w.fillOnce(w.scaled(backupZnodes)); err != nil {
		return figures{}, err
	}
	write := calls(session.set)
	if l.On == onAlone {
		return write(w, l)
	}
	leader, err := v.leader()
	if err != nil {
		return figures{}, err
	}
	b := &backups{v: v, member: (leader + 1) % members, file: filepath.Join(w.Place.Dir, "backup"), stop: make(chan struct{})}
	ended := make(chan error, 1)
	go func() { ended <- b.loop() }()
	f, err := write(w, l)
	close(b.stop)
	err = errors.Join(err, <-ended)
	f.Values = map[string]float64{"backups": float64(b.made), "backup_mb": float64(b.size) / 1e6,
		"backup_ms": millis(b.took) / float64(max(b.made, 1))}
	return f, err
}

// backups are the backups of one window, at least one, made by a goroutine of their own.
type backups struct {
	v      *vivarium
	member int
	file   string
	stop   chan struct{}

	made int
	size int64         // of the newest
	took time.Duration // all, with their verification
}

func (b *backups) loop() error {
	for {
		began := time.Now()
		info, err := backup.Save(b.file, func(out io.Writer) error {
			_, err := b.v.nodes[b.member].Backup(context.Background(), out)
			return err
		})
		if err != nil {
			return err
		}
		b.made, b.size, b.took = b.made+1, info.Size, b.took+time.Since(began)
		select {
		case <-b.stop:
			return nil
		default:
		}
	}
}
