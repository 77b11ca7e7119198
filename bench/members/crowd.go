//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/vivarium-go/vivarium/bench/internal/measure"
	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/internal/testkit/child"
)

// payload is how many bytes each write of a crowd carries.
const payload = 64

// patience is how long a crowd may take to come together.
const patience = 5 * time.Minute

// found asks for the founder of a crowd.
type found struct{ Dir, Address string }

// crowd asks for members that join a founder.
type crowd struct {
	Dir       string
	Join      string
	Addresses []string
}

// write asks for a number of znodes to be set per second.
type write struct {
	Rate   int
	Window time.Duration
}

// crowdMembers are the members that run in this process.
type crowdMembers struct{ nodes []*embed.Node }

func (m *crowdMembers) start(c embed.Config) error {
	c.Logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	n, err := embed.Start(c)
	if err == nil {
		m.nodes = append(m.nodes, n)
	}
	return err
}

func (m *crowdMembers) ready() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for i, n := range m.nodes {
		if err := n.Ready(ctx); err != nil {
			return fmt.Errorf("member %d of %d in this process: %w", i+1, len(m.nodes), err)
		}
	}
	return nil
}

func (m *crowdMembers) found(f *found) error {
	err := m.start(embed.Config{Dir: f.Dir, Join: []string{f.Address}, Advertise: f.Address,
		Found: func(context.Context) (bool, error) { return true, nil }})
	return errors.Join(err, m.ready())
}

func (m *crowdMembers) join(c *crowd) error {
	for i, address := range c.Addresses {
		err := m.start(embed.Config{Dir: filepath.Join(c.Dir, fmt.Sprint(i)), Join: []string{c.Join}, Advertise: address})
		if err != nil {
			return err
		}
	}
	return m.ready()
}

// measureRest measures the CPU time of this process while nobody uses the ensemble.
func measureRest(window time.Duration) answer {
	cpu := measure.CPU()
	time.Sleep(window)
	return answer{CPU: (measure.CPU() - cpu).Seconds() / window.Seconds()}
}

// writers is how many callers share the rate. Each sets a znode of its own.
const writers = 50

// write sets znodes at a rate, from the node of this process that leads.
func (m *crowdMembers) write(w *write) (answer, error) {
	ctx := context.Background()
	n := m.nodes[0]
	if s := n.Status(); !s.Leading(s.Shards[0]) {
		return answer{}, fmt.Errorf("member %d leads, and not the founder: measure again", s.Shards[0].Leader)
	}
	s, err := n.NewSession(ctx, embed.SessionOptions{})
	if err != nil {
		return answer{}, err
	}
	defer s.Close()
	data := make([]byte, payload)
	var (
		all  sync.WaitGroup
		seen [writers]measure.Histogram
		errs [writers]error
	)
	pause := writers * time.Second / time.Duration(w.Rate)
	cpu, begin := measure.CPU(), time.Now()
	for i := range writers {
		all.Go(func() {
			path := fmt.Sprintf("/w%d", i)
			if errs[i] = put(ctx, s, path, data); errs[i] != nil {
				return
			}
			next := begin.Add(pause * time.Duration(i) / writers)
			for ; next.Before(begin.Add(w.Window)); next = next.Add(pause) {
				time.Sleep(time.Until(next))
				asked := time.Now()
				if _, errs[i] = s.Set(ctx, path, data, embed.AnyVersion); errs[i] != nil {
					return
				}
				seen[i].Record(time.Since(asked))
			}
		})
	}
	all.Wait()
	took := time.Since(begin).Seconds()
	var h measure.Histogram
	for i := range seen {
		h.Add(&seen[i])
	}
	return answer{CPU: (measure.CPU() - cpu).Seconds() / took, Rate: float64(h.Count()) / took,
		P50: h.Quantile(0.5), P99: h.Quantile(0.99)}, errors.Join(errs[:]...)
}

// put creates a znode unless it is there.
func put(ctx context.Context, s *embed.Session, path string, data []byte) error {
	_, err := s.Create(ctx, path, data, embed.Persistent)
	if errors.Is(err, embed.ErrNodeExists) {
		return nil
	}
	return err
}

// crowdFigures are those of one crowd in one round.
type crowdFigures struct{ rest, load answer }

// runCrowds measures crowds of all sizes in turn.
func (s settings) runCrowds(dir string, out io.Writer) error {
	if len(s.members) == 0 {
		return nil
	}
	figures := make(map[int][]crowdFigures)
	for round := range s.rounds {
		for _, n := range s.members {
			f, err := s.runCrowd(filepath.Join(dir, fmt.Sprintf("crowd-%d-%d", n, round)), n)
			if err != nil {
				return fmt.Errorf("%d members: %w", n, err)
			}
			figures[n] = append(figures[n], f)
			fmt.Fprintf(out, "round %d: %d members: the leader uses %.3f cores at rest, %.3f with %.0f writes/s\n",
				round+1, n, f.rest.CPU, f.load.CPU, f.load.Rate)
		}
	}
	printCrowds(out, s, figures)
	return nil
}

func (s settings) runCrowd(dir string, n int) (f crowdFigures, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return f, err
	}
	defer os.RemoveAll(dir)
	addresses, err := child.FreeAddrs(n)
	if err != nil {
		return f, err
	}
	leader, err := spawn(dir, "leader")
	if err != nil {
		return f, err
	}
	defer leader.end()
	if _, err := leader.ask(question{Found: &found{Dir: filepath.Join(dir, "founder"), Address: addresses[0]}}); err != nil {
		return f, err
	}
	others, err := spawn(dir, "others")
	if err != nil {
		return f, err
	}
	defer others.end()
	if _, err := others.ask(question{Crowd: &crowd{Dir: dir, Join: addresses[0], Addresses: addresses[1:]}}); err != nil {
		return f, err
	}
	if _, err := leader.ask(question{Rest: &span{Window: s.window}}); err != nil { // until those that may vote do
		return f, err
	}
	if f.rest, err = leader.ask(question{Rest: &span{Window: s.window}}); err != nil {
		return f, err
	}
	f.load, err = leader.ask(question{Write: &write{Rate: s.rate, Window: s.window}})
	return f, err
}
