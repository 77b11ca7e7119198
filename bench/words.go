//go:build linux

package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/vivarium-go/vivarium/internal/testkit/child"
)

// A speaker is a process that answers lines of words. It ends when its input does.
type speaker struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	log    string
	said   chan string // closed when it has ended
	broken error       // it died or hung, and is not asked again
}

// startSpeaker starts a process. Its standard error goes to the file log. The process says "ready"
// when it can be asked.
func startSpeaker(cmd *exec.Cmd, log string) (*speaker, error) {
	c := &speaker{cmd: cmd, log: log, said: make(chan string, 1<<14)}
	file, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	cmd.Stderr = file
	if c.in, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := child.Start(cmd); err != nil {
		return nil, err
	}
	go c.readLoop(out)
	if err := c.expect("ready", patience); err != nil {
		c.kill()
		return nil, err
	}
	return c, nil
}

// readLoop passes on what the process says. It ends with the process.
func (c *speaker) readLoop(out io.Reader) {
	for lines := bufio.NewScanner(out); lines.Scan(); {
		c.said <- lines.Text()
	}
	_ = c.cmd.Wait() // what it said last tells more
	close(c.said)
}

// next returns the next line that the process says.
func (c *speaker) next(limit time.Duration) (string, error) {
	if c.broken != nil {
		return "", c.broken
	}
	late := time.NewTimer(limit)
	defer late.Stop()
	select {
	case text, ok := <-c.said:
		if !ok {
			c.broken = fmt.Errorf("%v: %s", c.cmd.ProcessState, c.lastWords())
		}
		return text, c.broken
	case <-late.C:
		c.broken = fmt.Errorf("no answer in %v: %s", limit, c.lastWords())
		c.kill()
		return "", c.broken
	}
}

// expect waits for a line.
func (c *speaker) expect(want string, limit time.Duration) error {
	got, err := c.next(limit)
	if err == nil && got != want {
		err = fmt.Errorf("it said %q instead of %q: %s", got, want, c.lastWords())
	}
	return err
}

// tell sends a line. An error means that the process has ended, which next returns.
func (c *speaker) tell(words string) { _, _ = io.WriteString(c.in, words+"\n") }

// ask sends a line and returns the numbers of the answer.
func (c *speaker) ask(words string, limit time.Duration) ([]float64, error) {
	if c.broken == nil {
		c.tell(words)
	}
	text, err := c.next(limit)
	if err != nil {
		return nil, err
	}
	all := strings.Fields(text)
	if len(all) < 2 || all[0] != "=" {
		return nil, fmt.Errorf("%s: %s", words, text)
	}
	var numbers []float64
	for _, one := range all[1:] {
		x, err := strconv.ParseFloat(one, 64)
		if err != nil {
			return nil, fmt.Errorf("%s: %s", words, text)
		}
		numbers = append(numbers, x)
	}
	return numbers, nil
}

// lastWords returns the end of the log.
func (c *speaker) lastWords() string {
	text, _ := os.ReadFile(c.log) // without the log there is less to say
	return strings.TrimSpace(string(text[max(0, len(text)-2000):]))
}

// kill ends the process at once, and waits until it is gone.
func (c *speaker) kill() {
	_ = c.cmd.Process.Kill()
	for range c.said {
	}
}
