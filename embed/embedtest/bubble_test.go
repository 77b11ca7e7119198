package embedtest_test

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/gateway"
	"github.com/vivarium-go/vivarium/embed/lock"
)

// In a bubble all clocks of a member run in virtual time. If one ran in real time, the member would
// believe that somebody had set the other, and the hold would end.
func TestBubble_AHoldLastsForHours(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ens := embedtest.New(t, 1, embedtest.Options{Config: func(c *embed.Config) { c.Tick = time.Second }})
		hold, err := lock.NewMutex(ens.Session(1, embed.SessionOptions{}), "/lock").Lock(t.Context())
		must(t, err)
		for range 3 {
			<-time.After(time.Hour)
			must(t, hold.Err())
		}
	})
}

// A bubble cannot use an ensemble that runs in real time. It is told so.
func TestBubble_AnEnsembleOfOutside(t *testing.T) {
	f := &failing{TB: t}
	ens := embedtest.New(f, 1, embedtest.Options{})
	synctest.Test(t, func(t *testing.T) {
		end := make(chan struct{})
		go func() {
			defer close(end) // Fatalf ends this goroutine
			ens.Node(1)
		}()
		<-end
		if text, _ := f.last.Load().(string); !strings.Contains(text, "made outside it") {
			t.Errorf("the test failed with %q", text)
		}
	})
}

// Bubbles one after the other and beside each other have ensembles, which share what their
// libraries keep for the whole process.
func TestBubble_SharesTheProcess(t *testing.T) {
	for range 4 {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			for range 4 {
				synctest.Test(t, func(t *testing.T) {
					ens := embedtest.New(t, 1, embedtest.Options{})
					s := ens.Session(1, embed.SessionOptions{})
					for i := range 200 {
						_, err := s.Create(t.Context(), fmt.Sprint("/", i), make([]byte, 1000), embed.Persistent)
						must(t, err)
					}
					must(t, ens.Snapshot(1))
				})
			}
		})
	}
}

// In a bubble a gateway opens no port, and its clients use Dial.
func TestBubble_Gateway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ens := embedtest.New(t, 1, embedtest.Options{})
		door, err := gateway.Start(ens.Node(1), gateway.Config{Listen: ":0", Words: []string{"ruok"}})
		must(t, err)
		conn, err := ens.Dial(t.Context(), 1)
		must(t, err)
		_, err = conn.Write([]byte("ruok"))
		must(t, err)
		answer, err := io.ReadAll(conn)
		if string(answer) != "imok" {
			t.Errorf("the gateway says %q, %v", answer, err)
		}
		must(t, conn.Close())
		must(t, door.Close())
		if _, err := ens.Dial(t.Context(), 1); err == nil {
			t.Error("a closed gateway answers")
		}
	})
}

// A member may be killed while it is asked who votes. Nobody answers that question, so it waits for
// virtual time, which stands still while a goroutine waits for a mutex.
func TestBubble_KilledWhileItIsAskedWhoVotes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ens := embedtest.New(t, 3, embedtest.Options{})
		leader := ens.Leader()
		ens.Isolate(leader)
		n, asked := ens.Node(leader), make(chan error)
		go func() {
			_, err := embedtest.Voters(t.Context(), n)
			asked <- err
		}()
		synctest.Wait()
		ens.Kill(leader)
		if err := <-asked; err == nil {
			t.Error("without a quorum it knows who votes")
		}
	})
}

// A node may be closed twice at once while Close waits for virtual time: here for a slow disk.
func TestBubble_ClosedTwiceAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ens := embedtest.New(t, 1, embedtest.Options{})
		n := ens.Node(1)
		ens.Faults(1).SetDisk(embedtest.Disk{Delay: 100 * time.Millisecond})
		closed := make(chan error)
		began := time.Now()
		for range 2 {
			go func() { closed <- n.Close() }()
		}
		for range 2 {
			must(t, <-closed)
		}
		if time.Since(began) == 0 {
			t.Error("Close has waited for nothing")
		}
	})
}
