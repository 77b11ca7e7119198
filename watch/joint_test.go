package watch

import (
	"sync"
	"testing"

	"github.com/vivarium-go/vivarium/tree"
)

// A Once watch on several registries fires once and ends without an error, however close together
// its changes happen.
func TestJointOnceFiresOnce(t *testing.T) {
	const rounds = 20_000
	registries := []*Registry{NewRegistry(), NewRegistry()}
	for z := tree.Zxid(1); z <= rounds; z++ {
		j := Join(registries, "/", Once, Options{}, nil)
		told := make(chan int)
		go func() {
			n := 0
			for range j.Events() { // takes the first event at once, and so makes room for a second
				n++
			}
			told <- n
		}()
		var start, all sync.WaitGroup
		start.Add(1)
		for _, r := range registries {
			all.Go(func() {
				start.Wait()
				r.Deliver(z, set("/"), nil)
			})
		}
		start.Done()
		all.Wait()
		if n := <-told; n != 1 || j.Err() != nil {
			t.Fatalf("round %d: told %d times, ended with %v", z, n, j.Err())
		}
		j.Close()
	}
}

// The same, step by step: the second event comes when the first is queued and the watch has not
// ended yet.
func TestJointOnceIsOverWithItsFirstEvent(t *testing.T) {
	for _, taken := range []bool{false, true} {
		registries := []*Registry{NewRegistry(), NewRegistry()}
		j := Join(registries, "/", Once, Options{}, nil)
		if !j.parts[0].tellLocked(Event{Type: NodeDataChanged, Path: "/", Zxid: 1}) {
			t.Fatal("the first event did not fit")
		}
		if taken {
			<-j.Events()
		}
		registries[1].Deliver(1, set("/"), nil)
		registries[0].Deliver(1, set("/"), nil)
		n := 0
		for range j.Events() {
			n++
		}
		if taken {
			n++
		}
		if n != 1 || j.Err() != nil {
			t.Errorf("taken at once: %v: told %d times, ended with %v", taken, n, j.Err())
		}
	}
}
