package membertest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/internal/embedkit"
	"github.com/vivarium-go/vivarium/embed/lock"
	"github.com/vivarium-go/vivarium/internal/testkit"
)

// M29, M112: tokens of locks grow over all histories of an ensemble: recoveries from one survivor and
// then from another, and new ensembles that begin with any backup of before, in any order. The clock
// may have been fast when the first history began.
func TestRecover_TokensGrowOverAllHistories(t *testing.T) {
	t.Parallel()
	rng := testkit.Rand(t)
	for i := range 6 {
		if t.Failed() {
			break
		}
		testkit.Bubble(t, func(t *testing.T) {
			if i > 0 { // virtual time begins in the year 2000
				<-time.After(time.Until(time.Date(2026, 11, 27, 0, 0, 0, 0, time.UTC)))
			}
			h := &histories{t: t, rng: rng}
			h.found(nil, 0)
			if i%2 == 1 {
				h.found(h.backup(), 50*time.Minute)
			}
			for range 5 {
				h.step()
			}
			t.Log(h.story)
		})
	}
}

// histories are what has become of an ensemble.
type histories struct {
	t       *testing.T
	rng     *rand.Rand
	now     *embedtest.Ensemble
	running []embed.MemberID
	left    []embed.MemberID // have not been recovered
	backups [][]byte
	token   embed.Zxid // the last one
	story   string
}

// found begins an ensemble, with a backup if there is one, while all clocks are fast.
func (h *histories) found(backup []byte, fast time.Duration) {
	h.now = embedtest.New(h.t, 3, embedtest.Options{Stopped: true, Config: func(c *embed.Config) {
		if backup != nil {
			c.Seed = func(context.Context) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(backup)), nil }
		}
	}})
	for _, m := range h.now.Members() {
		h.now.Faults(m).SetWallClock(fast)
		h.now.Start(m)
	}
	ofAge(h.now)
	for _, m := range h.now.Members() {
		h.now.Faults(m).SetWallClock(0)
		h.now.Ready(m)
	}
	h.running, h.left = h.now.Members(), h.now.Members()
	h.grant(1)
}

// grant takes a lock on a member, whose token must be larger than all before.
func (h *histories) grant(at embed.MemberID) {
	ctx := bounded(h.t)
	s := h.now.Session(at, embed.SessionOptions{})
	hold, err := lock.NewMutex(s, "/locks/report").Lock(ctx)
	must(h.t, err)
	if token := hold.Token().Zxid; token <= h.token {
		h.t.Fatalf("%s: token %#x after %#x", h.story, token, h.token)
	} else {
		h.token = token
	}
	must(h.t, hold.Release())
	must(h.t, s.Close())
}

// backup returns a backup by a member that runs.
func (h *histories) backup() []byte {
	var file bytes.Buffer
	_, err := h.now.Node(h.running[0]).Backup(bounded(h.t), &file)
	must(h.t, err)
	return file.Bytes()
}

// step loses the ensemble, after a backup or without, and goes on from a survivor or a backup.
func (h *histories) step() {
	at := h.running[0]
	if len(h.backups) == 0 || h.rng.IntN(2) == 0 {
		h.backups = append(h.backups, h.backup())
		h.story += fmt.Sprintf(" backup-%d", len(h.backups))
		h.grant(at)
	}
	for _, m := range h.running {
		h.now.Kill(m)
	}
	<-time.After(time.Duration(h.rng.IntN(3)) * 20 * time.Second)
	if len(h.left) == 0 || h.rng.IntN(2) == 0 {
		n := h.rng.IntN(len(h.backups))
		h.story += fmt.Sprintf(" seed-%d", n+1)
		h.found(h.backups[n], 0)
		return
	}
	// The one that is recovered may never have heard of one that was recovered before.
	i := h.rng.IntN(len(h.left))
	next := h.left[i]
	h.left = slices.Delete(h.left, i, i+1)
	h.story += fmt.Sprintf(" recover-%d", next)
	others := slices.DeleteFunc(h.now.Members(), func(m embed.MemberID) bool { return m == next })
	must(h.t, h.now.Recover(next, others...))
	h.now.Restart(next)
	embedkit.Voting(h.now, next, next)
	h.running = []embed.MemberID{next}
	h.grant(next)
}
