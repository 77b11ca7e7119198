package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/rpc"
	"os"
	"os/signal"
	"strings"
	"sync"
	"time"

	"github.com/vivarium-go/vivarium/embed"
)

const (
	stopTimeout  = 3 * time.Second  // limits a member's shutdown
	leaveTimeout = 30 * time.Second // limits its leave, for which another member takes its place
)

// A memberConfig is what the parent tells a member, as one line of JSON on its standard input. The
// member lives as long as its standard input is open, so it cannot outlive its parent. A second
// line makes it leave the ensemble.
type memberConfig struct {
	Process   int // its number, which stays when a new member runs in its place
	Dir       string
	Ensemble  string
	Join      []string
	Advertise string
	Name      string // a new member takes the place of the one that had it
	Founds    bool
	Ledger    string // address
}

// member is the main function of a member.
func member(stdin io.Reader, stderr io.Writer) int {
	signal.Ignore(os.Interrupt) // Ctrl-C reaches the whole group
	log := slog.New(slog.NewTextHandler(stderr, nil))
	in := bufio.NewReader(stdin)
	line, err := in.ReadBytes('\n')
	var c memberConfig
	if err == nil {
		err = json.Unmarshal(line, &c)
	}
	if err == nil {
		err = c.run(in, log)
	}
	if err != nil {
		log.Error("member ends", "err", err)
		return 1
	}
	return 0
}

func (c memberConfig) run(in *bufio.Reader, log *slog.Logger) error {
	node, err := embed.Start(embed.Config{
		Dir: c.Dir, Join: c.Join, Advertise: c.Advertise, Name: c.Name, Ensemble: c.Ensemble, Logger: log,
		Found: func(context.Context) (bool, error) { return c.Founds, nil },
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var running sync.WaitGroup
	running.Go(func() { c.live(ctx, node, log) })
	told := make(chan string, 1)
	go func() {
		line, _ := in.ReadString('\n') // the end of the parent is an order to stop too
		told <- line
	}()
	leaves := false
	select {
	case line := <-told:
		leaves = strings.TrimSpace(line) == "leave"
	case <-node.Done():
	}
	failed := node.Err()
	bound, end := context.WithTimeout(context.Background(), stopTimeout)
	if leaves {
		end()
		bound, end = context.WithTimeout(context.Background(), leaveTimeout)
		failed = errors.Join(failed, node.Leave(bound))
	} else if err := node.Shutdown(bound); err != nil {
		log.Warn("shutdown", "err", err) // the last member has no quorum left to close its sessions
	}
	end()
	cancel()
	running.Wait()
	return errors.Join(failed, node.Close())
}

// live runs the service, and reports to the parent, until ctx or the node ends.
func (c memberConfig) live(ctx context.Context, node *embed.Node, log *slog.Logger) {
	if err := node.Ready(ctx); err != nil {
		return // the node says why
	}
	ledger, err := rpc.Dial("tcp", c.Ledger)
	if err != nil {
		log.Error("no ledger", "err", err)
		return
	}
	defer ledger.Close()
	from := embed.OpenerWith(node, embed.SessionOptions{Timeout: sessionTimeout})
	s := service{process: c.Process, from: from, ledger: ledgerClient{ledger}}
	var reports sync.WaitGroup
	defer reports.Wait()
	reports.Go(func() { c.reportLoop(ctx, node, s) })
	for ctx.Err() == nil && node.Err() == nil {
		if err := s.run(ctx); err != nil && ctx.Err() == nil {
			log.Warn("service ends, beginning again", "err", err)
			pause(ctx, lookPause)
		}
	}
}

// A Report is what a member tells the parent about itself, again and again.
type Report struct {
	Process int
	Member  embed.MemberID
	Members []embed.Member
	Leads   bool
	Queued  int       // orders in the queue
	Began   time.Time // when the newest write of a report was begun
	Wrote   time.Time // when it was acknowledged
}

// reportLoop reports until ctx or the node ends.
func (c memberConfig) reportLoop(ctx context.Context, node *embed.Node, s service) {
	for ; ctx.Err() == nil && node.Err() == nil; pause(ctx, lookPause) {
		session, err := s.from.NewSession(ctx, embed.SessionOptions{})
		if err != nil {
			continue
		}
		for ; err == nil && ctx.Err() == nil; pause(ctx, lookPause) {
			err = c.reportOnce(ctx, node, session, s)
		}
		_ = session.Close() // it may have ended
	}
}

func (c memberConfig) reportOnce(ctx context.Context, node *embed.Node, session *embed.Session, s service) error {
	r := Report{Process: c.Process, Began: time.Now()}
	if _, err := session.Set(ctx, root, nil, embed.AnyVersion); err != nil {
		return err
	}
	r.Wrote = time.Now()
	queue, _, err := session.Exists(ctx, queuePath+"/entries")
	if err != nil {
		return err
	}
	status := node.Status()
	r.Member, r.Members, r.Queued = status.Member, node.Members(), int(queue.NumChildren)
	r.Leads = status.Leading(status.Shards[0])
	return s.ledger.ask(ctx, "Report", r, new(bool))
}
