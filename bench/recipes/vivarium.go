//go:build unix

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/internal/testkit/child"
)

// processVariable is the environment variable that makes this program a process of Vivarium.
const processVariable = "VIVARIUM_RECIPES_PROCESS"

// vivarium returns a command that starts this program as a process of Vivarium.
func vivarium() (func(args ...string) *exec.Cmd, error) {
	self, err := os.Executable()
	return func(args ...string) *exec.Cmd {
		cmd := exec.Command(self, args...)
		cmd.Env = append(os.Environ(), processVariable+"=1")
		return cmd
	}, err
}

// serve is the program as a process of Vivarium.
func serve(args []string) {
	var err error
	switch {
	case len(args) == 2 && args[0] == "client":
		err = serveClient(args[1])
	case len(args) == 8 && args[0] == "member":
		err = serveMember(args[1:])
	default:
		err = fmt.Errorf("wrong arguments %q", args)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// An ensemble is three members with a session each, the leader's first.
type ensemble struct {
	nodes    []*embed.Node
	sessions []*embed.Session
}

// serveClient starts an ensemble and measures on request.
func serveClient(dir string) error {
	e, err := startEnsemble(dir)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		numbers, err := e.measure(strings.Fields(in.Text()))
		if err != nil {
			fmt.Println("!", strings.ReplaceAll(err.Error(), "\n", "; "))
			continue
		}
		fmt.Print("=")
		for _, x := range numbers {
			fmt.Printf(" %v", x)
		}
		fmt.Println()
	}
	return nil // the parent is gone, and so is the ensemble
}

// measure does what a line of the parent asks for; see lines.
func (e *ensemble) measure(w []string) ([]float64, error) {
	switch {
	case len(w) == 3 && w[0] == "view":
		return e.view(w[1], number(w[2]))
	case len(w) == 4 && w[0] == "counter":
		return e.counter(w[1], number(w[2]), window(w[3]))
	case len(w) == 5 && w[0] == "flow":
		return e.flow(w[1], w[2], number(w[3]), window(w[4]))
	case len(w) == 5 && w[0] == "drain":
		return e.drain(w[1], number(w[2]), number(w[3]), window(w[4]))
	}
	return nil, fmt.Errorf("no such request: %q", w)
}

// number reads a number that the parent has written.
func number(word string) int {
	n, _ := strconv.Atoi(word)
	return n
}

func window(word string) time.Duration { return time.Duration(number(word)) * time.Millisecond }

func startEnsemble(dir string) (*ensemble, error) {
	addrs, err := child.FreeAddrs(members)
	if err != nil {
		return nil, err
	}
	e := &ensemble{}
	for i := range addrs {
		n, err := startNode(dir, i, addrs)
		if err != nil {
			return nil, err
		}
		e.nodes = append(e.nodes, n)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, n := range e.nodes {
		if err := n.Ready(ctx); err != nil {
			return nil, err
		}
	}
	lead := int(e.nodes[0].Status().Shards[0].Leader) - 1
	if lead < 0 {
		return nil, errors.New("no member leads")
	}
	e.nodes[0], e.nodes[lead] = e.nodes[lead], e.nodes[0]
	for _, n := range e.nodes {
		s, err := n.NewSession(ctx, embed.SessionOptions{})
		if err != nil {
			return nil, err
		}
		e.sessions = append(e.sessions, s)
	}
	return e, nil
}

// startNode starts a member with default settings.
func startNode(dir string, i int, addrs []string) (*embed.Node, error) {
	c := embed.Config{Dir: filepath.Join(dir, fmt.Sprint(i)), ID: embed.MemberID(i + 1), Members: make(map[embed.MemberID]string),
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))}
	for i, addr := range addrs {
		c.Members[embed.MemberID(i+1)] = addr
	}
	return embed.Start(c)
}
