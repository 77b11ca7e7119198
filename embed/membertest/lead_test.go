package membertest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/internal/embedkit"
	"github.com/vivarium-go/vivarium/embed/lock"
)

// fast is how far a clock is ahead while a history begins.
const fast = 50 * time.Minute

// beginFast recovers an ensemble from member 1, whose clock is fast until it is ready.
func beginFast(t *testing.T, e *embedtest.Ensemble) {
	ofAge(e)
	killAll(e)
	must(t, e.Recover(1, 2, 3))
	e.Faults(1).SetWallClock(fast)
	e.Restart(1)
	e.Faults(1).SetWallClock(0)
}

// granted returns the token of a lock that is taken on a member.
func granted(t *testing.T, e *embedtest.Ensemble, at embed.MemberID) embed.Zxid {
	s := e.Session(at, embed.SessionOptions{})
	hold, err := lock.NewMutex(s, "/locks/report").Lock(bounded(t))
	must(t, err)
	must(t, hold.Release())
	must(t, s.Close())
	return hold.Token().Zxid
}

// M29, M110: the clock was fast when the past began. The first start after a recovery dies at any time, and
// is repeated after another survivor has served. The later tokens are larger.
func TestRecover_TokensGrowAfterAFirstStartThatDied(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		<-time.After(time.Until(time.Date(2026, 11, 27, 0, 0, 0, 0, time.UTC)))
		e := embedtest.New(t, 3, embedtest.Options{Dir: dir, Config: func(c *embed.Config) { c.Shards = 2 }})
		beginFast(t, e)
		e.Wipe(2)
		e.Wipe(3)
		e.Restart(2)
		e.Restart(3)
		two, three := e.ID(2), e.ID(3)
		embedkit.Voting(e, 1, 1, two, three)
		<-time.After(2 * time.Second)
		last := granted(t, e, 1)
		grows := func(at embed.MemberID) {
			t.Helper()
			now := granted(t, e, at)
			if now <= last {
				t.Errorf("the token %#x follows %#x", now, last)
			}
			last = max(last, now)
			<-time.After(time.Minute)
		}
		killAll(e)

		must(t, e.Recover(2, 1, three))
		dead := crashes(t, e, 2)
		<-time.After(time.Minute)
		must(t, e.Recover(3, 1, two))
		e.Restart(3)
		embedkit.Voting(e, 3, three)
		grows(3)
		grows(3)
		e.Kill(3)
		for _, crash := range dead {
			must(t, os.RemoveAll(e.Dir(2)))
			must(t, os.Rename(crash, e.Dir(2)))
			e.Restart(2)
			embedkit.Voting(e, 2, two)
			grows(2)
			e.Kill(2)
		}
	})
}

// crashes starts a member for the first time after its recovery, on a slow disk. It returns
// directories as crashes leave them, from all along the start.
func crashes(t *testing.T, e *embedtest.Ensemble, at embed.MemberID) (dead []string) {
	dir, now := e.Dir(at), ""
	e.Faults(at).SetDisk(embedtest.Disk{On: embedtest.Changes, Delay: 20 * time.Millisecond})
	over := make(chan struct{})
	go func() {
		defer close(over)
		for n := 0; ; n++ {
			text, err := os.ReadFile(filepath.Join(dir, "identity"))
			must(t, err)
			if !strings.Contains(string(text), `"recovered"`) {
				return
			}
			now = fmt.Sprintf("%s.crash%d", dir, n)
			must(t, os.CopyFS(now, os.DirFS(dir)))
			dead = append(dead, now)
			<-time.After(75 * time.Millisecond)
		}
	}()
	e.Start(at)
	<-over
	e.Kill(at)
	e.Faults(at).SetDisk(embedtest.Disk{})
	t.Logf("%d crashes", len(dead))
	return dead
}

// M111: the clock was fast when the past began, and a survivor lags behind what the lost voter gave.
// It goes on above all that this could be, whenever it is recovered.
func TestRecover_ASurvivorThatLagsGoesOnAboveAll(t *testing.T) {
	t.Parallel()
	embedkit.Growing(t, 3, nil, func(t *testing.T, e *embedtest.Ensemble) {
		beginFast(t, e)
		e.Wipe(3)
		e.Restart(3) // a learner: two voters are no better than one
		<-time.After(5 * time.Second)
		granted(t, e, 1)
		<-time.After(time.Second)
		knows, at := zxids(e.Node(3))[0], time.Now()
		e.Kill(3)
		e.Kill(1)
		e.Wipe(1)
		// The survivor is just half a second less than a power of two ahead of the clock.
		<-time.After(time.Until(time.UnixMicro(int64(knows)).Add(-2048*time.Second + 500*time.Millisecond)))
		must(t, e.Recover(3, 1))
		e.Restart(3)
		embedkit.Voting(e, 3, e.ID(3))
		most := knows + embed.Zxid(time.Since(at).Microseconds()) // at a million a second
		if now := granted(t, e, 3); now <= most {
			t.Errorf("%#x follows %#x", now, most)
		}
	})
}
