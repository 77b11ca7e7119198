//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// blockVariable makes this program one block instead of the parent; it holds the block.
const blockVariable = "VIVARIUM_SHARDS_BLOCK"

// resultFD is where a block's process writes its result.
const resultFD = 3

// members is the size of every ensemble.
const members = 3

// payload is how many bytes each write carries.
const payload = 64

// block is one ensemble that is measured.
type block struct {
	System  string
	Shards  int
	Writers []int
	Window  time.Duration
	Dir     string
}

// result is what a block measured.
type result struct {
	Rest rest
	Load []load // by Writers
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
	// writer returns what writer i calls for a write: it returns once that is applied. The writers are spread over the shards,
	// and each is on the member that leads its shard.
	writer(i int) (func() error, error)
	// entries counts what the logs of all shards hold.
	entries() uint64
	close()
}

// systems found ensembles of so many shards below a directory. When they return, the shards are led by the members in turn.
var systems = map[string]func(dir string, shards int) (ensemble, error){
	"vivarium":   startVivarium,
	"dragonboat": startTan,
	"pebble":     startPebble,
}

// spawn runs the block in a process of its own and in a directory below dir.
func (b block) spawn(dir string) (r result, err error) {
	if b.Dir, err = os.MkdirTemp(dir, "block-"); err != nil {
		return r, err
	}
	defer os.RemoveAll(b.Dir)
	self, err := os.Executable()
	if err != nil {
		return r, err
	}
	text, err := json.Marshal(b)
	if err != nil {
		return r, err
	}
	file, err := os.Create(filepath.Join(b.Dir, "result"))
	if err != nil {
		return r, err
	}
	defer file.Close()
	var said bytes.Buffer
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), blockVariable+"="+string(text))
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = &said, &said, []*os.File{file}
	if err := cmd.Run(); err != nil {
		return r, fmt.Errorf("%w: %s", err, said.Bytes())
	}
	if text, err = os.ReadFile(file.Name()); err != nil {
		return r, err
	}
	return r, json.Unmarshal(text, &r)
}

// runBlock measures the block in the environment and returns the exit status.
func runBlock() int {
	var b block
	err := json.Unmarshal([]byte(os.Getenv(blockVariable)), &b)
	var r result
	if err == nil {
		r, err = b.measure()
	}
	if err == nil {
		err = json.NewEncoder(os.NewFile(resultFD, "result")).Encode(r)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func (b block) measure() (r result, err error) {
	e, err := systems[b.System](b.Dir, b.Shards)
	if err != nil {
		return r, err
	}
	defer e.close()
	r.Rest = measureRest(e, b.Window)
	for _, n := range b.Writers {
		l, err := measureLoad(e, n, b.Window)
		if err != nil {
			return r, err
		}
		r.Load = append(r.Load, l)
	}
	return r, nil
}

// until waits for a condition.
func until(what string, done func() bool) error {
	for deadline := time.Now().Add(time.Minute); !done(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			return fmt.Errorf("waited a minute for %s", what)
		}
	}
	return nil
}
