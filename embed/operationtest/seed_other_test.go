package operationtest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/internal/embedkit"
)

const seedIgnored = "the backup in Config.Seed is ignored"

// A namedSeed is a backup with the name of a file.
type namedSeed struct {
	io.Reader
	name string
}

func (namedSeed) Close() error { return nil }

func (n namedSeed) Name() string { return n.name }

// named returns a Config.Seed of the past with the name of a file.
func (p *past) named(name string) func(context.Context) (io.ReadCloser, error) {
	return func(context.Context) (io.ReadCloser, error) { return namedSeed{bytes.NewReader(p.file), name}, nil }
}

func (p *past) sum() string { return fmt.Sprintf("%x", sha256.Sum256(p.file)) }

// Once the ensemble has begun, a member with another backup says so once after each start, names
// both, and loads nothing. Neither the same backup nor one that is gone is worth a line.
func TestSeed_AnotherBackupIsIgnored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, q := newPast(t, 1), newPast(t, 4)
		var log embedkit.Record
		seeds := map[embed.MemberID]func(context.Context) (io.ReadCloser, error){1: p.seed, 2: p.seed, 3: p.seed}
		ens := embedtest.New(t, 3, embedtest.Options{
			Logger: slog.New(slog.NewJSONHandler(&log, nil)), Config: func(c *embed.Config) { c.Tick, c.Seed = embed.DefaultTick, seeds[c.ID] },
		})
		seeds[1] = q.named("/other.backup")
		seeds[2] = func(context.Context) (io.ReadCloser, error) { return nil, os.ErrNotExist }
		for starts := 1; starts <= 2; starts++ {
			for _, id := range ens.Members() {
				ens.Stop(id)
				ens.Start(id)
				ens.Ready(id)
			}
			<-time.After(time.Minute)
			for _, id := range ens.Members() {
				lines := log.Of(id, seedIgnored)
				if id != 1 {
					if len(lines) > 0 {
						t.Errorf("member %d: %v", id, lines)
					}
					continue
				}
				if len(lines) != starts {
					t.Fatalf("after start %d: %v", starts, lines)
				}
				if l := lines[starts-1]; l["level"] != "WARN" || l["sum"] != p.sum() || l["ignored"] != q.sum() || l["file"] != "/other.backup" || l["cause"] == nil {
					t.Errorf("%v", l)
				}
			}
		}
		s := p.session(ens, 1)
		wantZnode(t, s, embedkit.OnShard[0]+"/a/b/c", p.znodes)
		must(t, s.Close())
	})
}

// A member that was not needed for the loading has compared its backup all the same.
func TestSeed_AnotherBackupFromTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, q := newPast(t, 1), newPast(t, 4)
		var log embedkit.Record
		ens := embedtest.New(t, 3, embedtest.Options{Logger: slog.New(slog.NewJSONHandler(&log, nil)), Config: func(c *embed.Config) {
			if c.Tick, c.Seed = embed.DefaultTick, p.seed; c.ID == 3 {
				c.Seed = q.seed
			}
		}})
		<-time.After(time.Minute)
		var sum any // of the backup that is loaded, as those say that have seen it happen
		for _, id := range ens.Members() {
			for _, l := range log.Of(id, "the backup is loaded") {
				if sum != nil && l["sum"] != sum {
					t.Errorf("member %d has loaded %v, another one %v", id, l["sum"], sum)
				}
				sum = l["sum"]
			}
		}
		if sum != p.sum() && sum != q.sum() {
			t.Fatalf("loaded: %v", sum)
		}
		for _, id := range ens.Members() {
			mine := p
			if id == 3 {
				mine = q
			}
			ignored := log.Of(id, seedIgnored)
			if other := sum != mine.sum(); other != (len(ignored) == 1) || len(ignored) > 1 || other && ignored[0]["ignored"] != mine.sum() {
				t.Errorf("member %d: %v, but %v is loaded", id, ignored, sum)
			}
		}
	})
}

// Nobody gets a backup of an ensemble that has a part of what it begins with: not from a member that
// loads, and not from one that has no backup to load.
func TestSeed_NoBackupOfAPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPast(t, 4)
		ens := embedtest.New(t, 3, embedtest.Options{Stopped: true, Config: func(c *embed.Config) {
			inParts(c)
			if c.Shards = 4; c.ID != 3 {
				c.Seed = p.seed
			}
		}})
		begun(t, ens)
		refused := 0
		for over := false; !over; <-time.After(100 * time.Microsecond) { // a refusal may take no time at all
			over = true
			for _, id := range ens.Members() {
				over = over && ens.Node(id).Health().Ready
				ctx, cancel := context.WithTimeout(t.Context(), 500*time.Microsecond)
				var file bytes.Buffer
				_, err := ens.Node(id).Backup(ctx, &file)
				cancel()
				if err != nil {
					if !errors.Is(err, embed.ErrUnavailable) {
						t.Fatalf("member %d: %v", id, err)
					}
					refused++
					continue
				}
				znodes, _ := read(t, file.Bytes())
				for path := range p.znodes {
					if _, ok := znodes[path]; !ok {
						t.Fatalf("member %d: %s is missing", id, path)
					}
				}
			}
		}
		if refused < 10 {
			t.Errorf("refused %d times", refused)
		}
		wantPast(t, ens, p)
	})
}
