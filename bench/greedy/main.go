//go:build linux

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/client"
)

func main() {
	length := flag.Duration("d", 2*time.Minute, "how long the attacks last together")
	most := flag.Int64("memory", 512<<20, "the resident memory of each member that is too much, in bytes")
	slow := flag.Duration("slow", time.Second, "how long a write, a new session or an answer of the admin port may take")
	files := flag.Int("files", 4096, "how many descriptors each member may open")
	flag.Parse()
	dir, err := os.MkdirTemp("", "greedy-")
	if err != nil {
		fail(err)
	}
	well, err := run(dir, *length, *most, *slow, *files)
	if err != nil {
		fail(err)
	}
	if !well {
		fmt.Println("logs and directories are in", dir)
		os.Exit(1)
	}
	_ = os.RemoveAll(dir)
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "greedy:", err)
	os.Exit(2)
}

// run plays all attacks, one after the other and then together, and reports whether the members stood it.
func run(dir string, length time.Duration, most int64, slow time.Duration, files int) (well bool, err error) {
	members, err := found(dir, most/8, files)
	defer func() {
		for _, m := range members {
			m.stop()
		}
	}()
	if err != nil {
		return false, err
	}
	j := &judge{members: members}
	for _, m := range members {
		s, err := prepare(m)
		if err != nil {
			return false, err
		}
		j.sessions = append(j.sessions, s)
	}
	fmt.Printf("%-32s %10s %6s %10s %10s %10s %10s %8s\n", "attack", "MiB", "files", "write p50", "write max", "enter max", "admin max", "failed")
	well = j.watch("nobody", 5*time.Second, most, slow, nil)
	part := length / time.Duration(len(attacks)+1)
	for i := range attacks {
		well = j.watch(attacks[i].name, part, most, slow, attacks[i:i+1]) && well
	}
	return j.watch("all", part, most, slow, attacks) && well, nil
}

// prepare opens a session at a member, and makes the znodes.
func prepare(m *member) (*embed.Session, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	k, err := client.New(client.Config{Servers: []string{m.door}})
	if err != nil {
		return nil, err
	}
	s, err := k.NewSession(ctx, embed.SessionOptions{})
	if err != nil {
		return nil, err
	}
	paths := map[string]int{"/bulk": 0, "/small": 4000, "/judge": 0}
	for i := range bulks {
		paths[bulk(i)] = bulkBytes
	}
	for _, path := range slices.Sorted(func(yield func(string) bool) {
		for path := range paths {
			if !yield(path) {
				return
			}
		}
	}) {
		if _, err := s.Create(ctx, path, make([]byte, paths[path]), embed.Persistent); err != nil && !errors.Is(err, embed.ErrNodeExists) {
			return nil, err
		}
	}
	return s, nil
}

// A judge looks at the members.
type judge struct {
	members  []*member
	sessions []*embed.Session // one at each member

	mu     sync.Mutex
	took   map[string][]time.Duration
	failed int
	first  error // of those that failed
	memory int64
	files  int
}

// watch plays attacks for a while, says what the members need and how long those wait who behave, and
// reports whether that is well.
func (j *judge) watch(name string, length time.Duration, most int64, slow time.Duration, list []attack) bool {
	j.took, j.failed, j.first, j.memory, j.files = make(map[string][]time.Duration), 0, nil, 0, 0
	ctx, cancel := context.WithTimeout(context.Background(), length)
	defer cancel()
	var all sync.WaitGroup
	for i := range list {
		all.Go(func() { list[i].play(ctx, j.members) })
	}
	for i, m := range j.members {
		s := j.sessions[i]
		for what, fn := range map[string]func(context.Context) error{
			"write": func(ctx context.Context) error {
				_, err := s.Set(ctx, "/judge", []byte(name), embed.AnyVersion)
				return err
			},
			"enter": func(ctx context.Context) error {
				var d net.Dialer
				c, err := d.DialContext(ctx, "tcp", m.door)
				if err != nil {
					return err
				}
				defer c.Close()
				_ = c.SetDeadline(time.Now().Add(20 * time.Second))
				if !enter(c) {
					return errors.New("a newcomer was turned away")
				}
				return nil
			},
			"admin": m.ask,
			"":      func(context.Context) error { return j.look(m) },
		} {
			all.Go(func() { j.repeat(ctx, what, fn) })
		}
	}
	all.Wait()
	worst := func(what string) time.Duration { return slices.Max(append(j.took[what], 0)) }
	writes := slices.Sorted(slices.Values(append(j.took["write"], 0)))
	fmt.Printf("%-32s %10d %6d %10s %10s %10s %10s %8d\n", name, j.memory>>20, j.files, round(writes[len(writes)/2]), round(worst("write")), round(worst("enter")), round(worst("admin")), j.failed)
	if j.first != nil {
		fmt.Println("   the first that failed:", j.first)
	}
	return j.failed == 0 && j.memory <= most && max(worst("write"), worst("enter"), worst("admin")) <= slow
}

func round(d time.Duration) string { return d.Round(100 * time.Microsecond).String() }

// repeat does something ten times a second, and notes how long it takes.
func (j *judge) repeat(ctx context.Context, what string, fn func(context.Context) error) {
	for wait(ctx, 100*time.Millisecond) {
		began := time.Now()
		one, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
		err := fn(one)
		cancel()
		j.mu.Lock()
		if j.took[what] = append(j.took[what], time.Since(began)); err != nil {
			if j.failed++; j.first == nil {
				j.first = fmt.Errorf("%s: %w", what, err)
			}
		}
		j.mu.Unlock()
	}
}

// look notes the most memory and descriptors of a member.
func (j *judge) look(m *member) error {
	memory, files, err := m.figures()
	j.mu.Lock()
	defer j.mu.Unlock()
	j.memory, j.files = max(j.memory, memory), max(j.files, files)
	return err
}
