//go:build unix

package main

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/vivarium-go/vivarium/bench/internal/bare"
	"github.com/vivarium-go/vivarium/bench/internal/measure"
	"github.com/vivarium-go/vivarium/internal/testkit/child"
)

// blockVariable is the environment variable that makes this program measure a block.
const blockVariable = "VIVARIUM_SHARDS_BLOCK"

// members is the size of every ensemble.
const members = 3

// payload is how many bytes each write carries.
const payload = 64

// A block is the measurement of one ensemble.
type block struct {
	System  string
	Shards  int
	Writers []int
	Window  time.Duration
	Dir     string
}

// A result is what a block measured.
type result struct {
	Rest  rest
	Load  []measure.Load // by Writers
	Error string         // why it measured nothing; empty if it did
}

func (r result) brief() string {
	var b bytes.Buffer
	for _, l := range r.Load {
		fmt.Fprintf(&b, " %8.0f/s", l.Rate)
	}
	return b.String()
}

// An ensemble is what a block measures.
type ensemble interface {
	// writer returns the write of writer i. The write returns once it is applied. The writers are
	// spread over the shards, and each is on the member that leads its shard.
	writer(i int) (func() error, error)
	// entries returns how many entries the logs of all shards hold.
	entries() uint64
	close()
}

// systems found ensembles with a number of shards below a directory. When they return, the members
// lead the shards in turn.
var systems = map[string]func(dir string, shards int) (ensemble, error){
	"vivarium":   startVivarium,
	"dragonboat": startBare(bare.StartTan),
	"pebble":     startBare(bare.StartPebble),
}

// spawn runs the block in a process of its own and in a directory below dir.
func (b block) spawn(dir string) (result, error) {
	var err error
	if b.Dir, err = os.MkdirTemp(dir, "block-"); err != nil {
		return result{}, err
	}
	defer os.RemoveAll(b.Dir)
	log := filepath.Join(b.Dir, "log")
	p, err := child.Spawn[block, result](blockVariable, log)
	if err != nil {
		return result{}, err
	}
	r, answered := <-p.Send(b, nil)
	p.Kill()
	<-p.Dead()
	if !answered || r.Error != "" {
		said, _ := os.ReadFile(log) // without the log there is less to say
		return r, fmt.Errorf("%s\n%s", cmp.Or(r.Error, "the process died before it answered"), said)
	}
	return r, nil
}

// runBlocks measures what the parent asks for.
func runBlocks() {
	child.Serve(func(b block, say func(result, bool)) {
		r, err := b.measure()
		if err != nil {
			r.Error = err.Error()
		}
		say(r, false)
	})
}

func (b block) measure() (r result, err error) {
	e, err := systems[b.System](b.Dir, b.Shards)
	if err != nil {
		return r, err
	}
	defer e.close()
	r.Rest = measureRest(e, b.Window)
	for _, n := range b.Writers {
		writers := make([]func() error, n)
		for i := range writers {
			if writers[i], err = e.writer(i); err != nil {
				return r, err
			}
		}
		l, err := measure.Run(b.Window, writers...)
		if err != nil {
			return r, err
		}
		r.Load = append(r.Load, l)
	}
	return r, nil
}
