package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/vivarium-go/vivarium/embed"
)

// sessionTimeout is how long a dead process keeps its locks. It is the least that the ensemble
// allows at its default tick.
const sessionTimeout = 3600 * time.Millisecond

const (
	stopTimeout  = 3 * time.Second  // limits a member's shutdown
	leaveTimeout = 30 * time.Second // limits its leave, for which another member takes its place
)

// A memberConfig is what the parent tells a member, as one line of JSON on its standard input. The
// member lives as long as its standard input is open, so it cannot outlive its parent, however that
// ends.
type memberConfig struct {
	Process   int // its number in the pool, which stays when a new member runs in its place
	ID        embed.MemberID
	Dir       string
	Ensemble  string
	Shards    int
	Members   map[embed.MemberID]string
	Join      []string
	Advertise string
	Name      string
	Desk      string        // address of the parent's desk
	Work      time.Duration // how long the business of one order takes
}

// A hello is the member's one line on its standard output: where its control listens, or why it did
// not start.
type hello struct {
	Control string
	Error   string
	InUse   bool // a port was in use: with other ports the member may start
}

// member is the main function of a member.
func member(stdin io.Reader, stdout, stderr io.Writer) int {
	// Ctrl-C reaches the whole group; the parent ends the members in an orderly way
	signal.Ignore(os.Interrupt)
	log := slog.New(slog.NewTextHandler(stderr, nil))
	in := bufio.NewReader(stdin)
	line, err := in.ReadBytes('\n')
	var cfg memberConfig
	if err == nil {
		err = json.Unmarshal(line, &cfg)
	}
	if err != nil {
		log.Error("no config on standard input", "err", err)
		return 1
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, in) // until the parent closes it, or ends
		cancel()
	}()
	if err := runMember(ctx, cfg, stdout, log); err != nil {
		log.Error("member ends", "err", err)
		return 1
	}
	return 0
}

func runMember(ctx context.Context, cfg memberConfig, stdout io.Writer, log *slog.Logger) error {
	say := json.NewEncoder(stdout)
	node, err := embed.Start(embed.Config{
		Dir: cfg.Dir, ID: cfg.ID, Members: cfg.Members, Join: cfg.Join, Advertise: cfg.Advertise, Name: cfg.Name,
		Ensemble: cfg.Ensemble, Shards: cfg.Shards, Logger: log,
	})
	if err != nil {
		return errors.Join(err, say.Encode(hello{Error: err.Error(), InUse: errors.Is(err, syscall.EADDRINUSE)}))
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c := &child{cfg: cfg, node: node, desk: deskClient{newClient(cfg.Desk)}, brake: &brake{}, log: log, end: cancel}
	defer c.desk.close()
	control, err := serve(c.routes())
	if err != nil {
		return errors.Join(err, say.Encode(hello{Error: err.Error()}), node.Close())
	}
	defer control.close()
	if err := say.Encode(hello{Control: control.addr}); err != nil {
		return errors.Join(err, node.Close())
	}
	lives := make(chan struct{})
	go func() {
		defer close(lives)
		c.liveLoop(ctx)
	}()
	select {
	case <-ctx.Done():
	case <-node.Done():
	}
	failed := errors.Join(node.Err(), c.goAway())
	<-lives
	// it is closed in any case; the error says whether all went well
	return errors.Join(failed, node.Close())
}

// goAway leaves the ensemble if the parent asked for that, and otherwise stops as a member that
// will come back.
func (c *child) goAway() error {
	if c.leaves.Load() {
		bound, cancel := context.WithTimeout(context.Background(), leaveTimeout)
		defer cancel()
		return c.node.Leave(bound)
	}
	bound, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	if err := c.node.Shutdown(bound); err != nil {
		c.log.Warn("shutdown", "err", err) // the last member has no quorum left to close its sessions
	}
	return nil
}

// A child is one process of the ensemble: a node, and the workers and the dispatcher on its
// sessions.
type child struct {
	// Immutable after runMember made it.
	cfg   memberConfig
	node  *embed.Node
	desk  deskClient
	brake *brake
	log   *slog.Logger
	end   context.CancelFunc

	leaves     atomic.Bool // it is to leave the ensemble when it ends
	dispatches atomic.Bool
	session    atomic.Pointer[embed.Session] // the session in use; nil while there is none
}

func (c *child) process() int { return c.cfg.Process }

// liveLoop lives from session to session until ctx or the node ends.
func (c *child) liveLoop(ctx context.Context) {
	for ctx.Err() == nil && !ended(c.node.Done()) {
		if err := c.live(ctx); err != nil && ctx.Err() == nil {
			c.log.Warn("session ends", "err", err)
			pause(ctx, retryPause)
		}
	}
}

func ended(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// live takes part in the work with one session until that ends.
func (c *child) live(ctx context.Context) error {
	if err := c.node.Ready(ctx); err != nil {
		return err
	}
	s, err := c.node.NewSession(ctx, embed.SessionOptions{Timeout: sessionTimeout})
	if err != nil {
		return err
	}
	var running sync.WaitGroup
	defer running.Wait()
	defer s.Close() // first, because this ends the holds and so the calls that wait for them
	if err := layOut(ctx, s); err != nil {
		return fmt.Errorf("lay out: %w", err)
	}
	if err := join(ctx, s, c.process()); err != nil {
		return fmt.Errorf("join: %w", err)
	}
	inner, cancel := context.WithCancel(s.Context())
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	w := &worker{process: c.process(), session: s, desk: c.desk, work: c.cfg.Work, brake: c.brake, log: c.log}
	d := &dispatcher{process: c.process(), session: s, desk: c.desk, leads: &c.dispatches, log: c.log}
	running.Go(func() { w.loop(inner) })
	running.Go(func() { d.loop(inner) })
	c.session.Store(s)
	defer c.session.Store(nil)
	select {
	case <-ctx.Done():
		return nil
	case <-s.Done():
		return s.Err()
	}
}
