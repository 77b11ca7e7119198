package embedtest_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/internal/testkit"
)

// The power of all members fails at once, in the middle of writes, several times. Everything that
// was acknowledged survives.
func TestPowerCut_KeepsWhatWasAcknowledged(t *testing.T) {
	seed := testkit.Seed(t)
	synctest.Test(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{Seed: seed})
		var told []string
		for round := range 4 {
			told = append(told, writeUntilPowerCut(t, ens, round)...)
			for _, id := range ens.Members() {
				ens.Start(id)
			}
			for _, id := range ens.Members() {
				ens.Ready(id)
				s := ens.Session(id, embed.SessionOptions{})
				for _, path := range told {
					if _, ok, err := s.Exists(t.Context(), path); !ok || err != nil {
						t.Errorf("round %d: member %d: %s exists: %v, %v", round, id, path, ok, err)
					}
				}
			}
		}
	})
}

// writeUntilPowerCut returns the paths of all znodes whose creation was acknowledged.
func writeUntilPowerCut(t *testing.T, ens *embedtest.Ensemble, round int) (told []string) {
	const writes = 200
	acknowledged := make(chan string)
	var writers sync.WaitGroup
	for _, id := range ens.Members() {
		s := ens.Session(id, embed.SessionOptions{})
		for i := range 3 {
			writers.Go(func() {
				for n := 0; ; n++ {
					path := fmt.Sprintf("/%d-%d-%d-%d", round, id, i, n)
					if _, err := s.Create(t.Context(), path, make([]byte, 100*n), embed.Persistent); err != nil {
						return
					}
					acknowledged <- path
				}
			})
		}
	}
	go func() {
		writers.Wait()
		close(acknowledged)
	}()
	for path := range acknowledged {
		told = append(told, path)
		switch len(told) {
		case writes / 2:
			must(t, ens.Snapshot(embed.MemberID(1+round%3)))
		case writes:
			ens.PowerCut(ens.Members()...)
		}
	}
	return told
}

// A member whose power fails alone comes back, whether it was running or not.
func TestPowerCut_OfOneMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{})
		victim := ens.Leader()
		ens.PowerCut(victim)
		_, err := ens.Session(ens.Leader(), embed.SessionOptions{}).Create(t.Context(), "/a", nil, embed.Persistent)
		must(t, err)
		ens.PowerCut(victim)
		ens.Restart(victim)
		if _, ok, err := ens.Session(victim, embed.SessionOptions{}).Exists(t.Context(), "/a"); !ok || err != nil {
			t.Errorf("/a exists: %v, %v", ok, err)
		}
	})
}

// A member that is being started or stopped would go on without its disk. So its power cannot be
// cut.
func TestPowerCut_OfAMemberThatStartsOrStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &failing{TB: t}
		ens := embedtest.New(f, 1, embedtest.Options{Stopped: true})
		refused := func() {
			t.Helper()
			end := make(chan struct{})
			go func() {
				defer close(end) // Fatalf ends this goroutine
				ens.PowerCut(1)
			}()
			<-end
			if text, _ := f.last.Swap("").(string); !strings.Contains(text, "being started or stopped") {
				t.Errorf("the test failed with %q", text)
			}
		}
		ens.Faults(1).SetDisk(embedtest.Disk{Delay: time.Hour})
		started := make(chan struct{})
		go func() {
			defer close(started)
			ens.Start(1)
		}()
		synctest.Wait()
		refused()
		ens.Faults(1).SetDisk(embedtest.Disk{})
		<-started
		ens.Ready(1)
		_, err := ens.Session(1, embed.SessionOptions{}).Create(t.Context(), "/a", nil, embed.Persistent)
		must(t, err)

		ens.Faults(1).SetDisk(embedtest.Disk{On: embedtest.Syncs, Delay: time.Second})
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			ens.Stop(1)
		}()
		synctest.Wait()
		refused()
		ens.Faults(1).SetDisk(embedtest.Disk{})
		<-stopped
		ens.Restart(1)
		if _, ok, err := ens.Session(1, embed.SessionOptions{}).Exists(t.Context(), "/a"); !ok || err != nil {
			t.Errorf("/a exists: %v, %v", ok, err)
		}
	})
}

// A real disk has no power that a test could cut. The test is told so.
func TestPowerCut_OfARealDisk(t *testing.T) {
	f := &failing{TB: t}
	ens := embedtest.New(f, 1, embedtest.Options{})
	end := make(chan struct{})
	go func() {
		defer close(end) // Fatalf ends this goroutine
		ens.PowerCut(1)
	}()
	<-end
	if text, _ := f.last.Load().(string); !strings.Contains(text, "in memory") {
		t.Errorf("the test failed with %q", text)
	}
}
