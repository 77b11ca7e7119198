//go:build unix

package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/vivarium-go/vivarium/internal/testkit/child"
)

// processVariable is the environment variable that makes this program a process of members.
const processVariable = "VIVARIUM_MEMBERS_PROCESS"

// A question asks a process to do one thing: that whose field is set.
type question struct {
	Found *found // start a founder
	Crowd *crowd // start members that join
	Rest  *span  // measure this process at rest
	Write *write // set znodes, and measure this process meanwhile
	Load  *load  // start an ensemble and fill it
	Learn *learn // let a learner join it
}

// A span says how long to measure.
type span struct{ Window time.Duration }

// An answer has what the question asked for.
type answer struct {
	Error    string // empty if it was done
	CPU      float64
	Rate     float64
	P50, P99 time.Duration
	Took     time.Duration
}

// A process is the parent's side of one.
type process struct {
	*child.Process[question, answer]
	log string
}

func spawn(dir, name string) (process, error) {
	log := filepath.Join(dir, name+".log")
	p, err := child.Spawn[question, answer](processVariable, log)
	return process{p, log}, err
}

func (p process) ask(q question) (answer, error) {
	a, answered := <-p.Send(q, nil)
	if !answered || a.Error != "" {
		said, _ := os.ReadFile(p.log) // without the log there is less to say
		return a, fmt.Errorf("%s\n%s", cmp.Or(a.Error, "the process died before it answered"), said)
	}
	return a, nil
}

func (p process) end() {
	p.Kill()
	<-p.Dead()
}

// serve does what the parent asks for.
func serve() {
	var m crowdMembers
	var full ensemble
	child.Serve(func(q question, say func(answer, bool)) {
		var a answer
		var err error
		switch {
		case q.Found != nil:
			err = m.found(q.Found)
		case q.Crowd != nil:
			err = m.join(q.Crowd)
		case q.Rest != nil:
			a = measureRest(q.Rest.Window)
		case q.Write != nil:
			a, err = m.write(q.Write)
		case q.Load != nil:
			full, err = q.Load.start()
		case q.Learn != nil:
			a.Took, err = full.learn(q.Learn.Dir, q.Learn.Round)
		}
		if err != nil {
			a.Error = err.Error()
		}
		say(a, false)
	})
}
