//go:build unix

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// voters is the size of the ensemble that a learner joins.
const voters = 3

// value is how many bytes each znode carries that a learner has to load.
const value = 100

// fillers is how many callers fill an ensemble.
const fillers = 512

// An ensemble is what a learner joins.
type ensemble interface {
	// put creates a znode or key. The path has one level below the parent.
	put(ctx context.Context, parent, name string, data []byte) error
	// learn starts a new member with an empty directory. It returns how long that took until the
	// member served, and takes it out again.
	learn(dir string, round int) (time.Duration, error)
}

// systems are the names of starts.
var systems = []string{"vivarium", "etcd"}

// starts start an ensemble in this process.
var starts = map[string]func(dir string) (ensemble, error){"vivarium": startVivarium, "etcd": startEtcd}

// load asks for an ensemble that is full.
type load struct {
	System, Dir string
	Znodes      int
}

// learn asks for one learner.
type learn struct {
	Dir   string
	Round int
}

func (l *load) start() (ensemble, error) {
	e, err := starts[l.System](l.Dir)
	if err != nil {
		return nil, err
	}
	return e, fill(e, l.Znodes)
}

// fill creates znodes below a thousandth as many parents.
func fill(e ensemble, znodes int) error {
	var all sync.WaitGroup
	errs := make(chan error, fillers)
	for i := range fillers {
		all.Go(func() {
			data := make([]byte, value)
			for n := i; n < znodes; n += fillers {
				if err := e.put(context.Background(), fmt.Sprintf("/p%d", n%(znodes/1000+1)), fmt.Sprintf("n%d", n), data); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	all.Wait()
	close(errs)
	return <-errs
}

// runLearners measures learners of all systems in turn.
func (s settings) runLearners(dir string, out io.Writer) error {
	if len(s.systems) == 0 {
		return nil
	}
	full := make(map[string]process)
	for _, name := range s.systems {
		p, err := s.fillSystem(filepath.Join(dir, name), name, out)
		if err != nil {
			return err
		}
		defer p.end()
		full[name] = p
	}
	took := make(map[string][]float64)
	for round := range s.rounds {
		for _, name := range s.systems {
			a, err := full[name].ask(question{Learn: &learn{Dir: filepath.Join(dir, name, fmt.Sprintf("learner-%d", round)), Round: round}})
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			took[name] = append(took[name], a.Took.Seconds())
			fmt.Fprintf(out, "round %d: %s: a learner served after %.2f s\n", round+1, name, a.Took.Seconds())
		}
	}
	printLearners(out, s, took)
	return nil
}

func (s settings) fillSystem(dir, name string, out io.Writer) (process, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return process{}, err
	}
	p, err := spawn(dir, name)
	if err != nil {
		return p, err
	}
	began := time.Now()
	if _, err := p.ask(question{Load: &load{System: name, Dir: dir, Znodes: s.znodes}}); err != nil {
		p.end()
		return p, fmt.Errorf("%s: %w", name, err)
	}
	fmt.Fprintf(out, "%s: %d znodes or keys after %.0f s\n", name, s.znodes, time.Since(began).Seconds())
	return p, nil
}
