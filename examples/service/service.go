package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"html/template"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/election"
	"github.com/vivarium-go/vivarium/embed/group"
	"github.com/vivarium-go/vivarium/embed/job"
	"github.com/vivarium-go/vivarium/embed/lock"
	"github.com/vivarium-go/vivarium/embed/partition"
	"github.com/vivarium-go/vivarium/embed/value"
)

// Settings are the configuration that all processes follow.
type Settings struct{ Rate int }

// How long things take here. The test is in more of a hurry.
var (
	settingsTime = 3 * time.Second // between changes of the settings
	nightTime    = 2 * time.Second // between reports: nights are short here
	silenceTime  = 4 * time.Second // until the others have what a dead process had
)

// A service is what one process runs.
type service struct {
	name     string
	node     *embed.Node
	settings atomic.Pointer[Settings] // nil until there are some
}

// serve runs a process until ctx or its node ends.
func serve(ctx context.Context, cfg embed.Config) error {
	port, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	cfg.SessionTimeout = silenceTime
	node, err := embed.Start(cfg)
	if err != nil {
		return err
	}
	defer node.Close()
	s := &service{name: fmt.Sprint("process-", cfg.ID), node: node}
	here := group.Join(node, "/service/processes", s.name, []byte(port.Addr().String()), group.Options{})
	defer here.Close()
	page := http.Server{Handler: s}
	defer page.Close()
	go page.Serve(port)
	fmt.Printf("%s has its page at http://%v\n", s.name, port.Addr())

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all sync.WaitGroup
	defer all.Wait()
	for _, run := range []func(context.Context) error{s.lead, s.follow, s.nightly, s.work} {
		all.Go(func() { cancel(run(ctx)) }) // each ends only with ctx, the node, or a mistake in its arguments
	}
	<-ctx.Done()
	return context.Cause(ctx)
}

// lead changes the settings while this process leads, and waits until all processes have them.
func (s *service) lead(ctx context.Context) error {
	return election.RunWith(ctx, s.node, "/service/leader", []byte(s.name), election.Options{}, func(ctx context.Context, l *election.Leadership) error {
		fmt.Println(s.name, "leads")
		settings := value.New(l.Session(), "/service/settings", value.JSON[Settings]())
		for {
			now, err := settings.Update(ctx, func(now Settings, _ bool) (Settings, error) { return Settings{now.Rate + 10}, nil })
			if err == nil {
				_, err = group.AwaitApplied(ctx, l.Session(), "/service/settings", now.Mzxid)
			}
			fmt.Println("all processes have the rate", now.Value.Rate, err)
			select {
			case <-time.After(settingsTime):
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	})
}

// follow applies the settings.
func (s *service) follow(ctx context.Context) error {
	return group.Follow(ctx, s.node, "/service/settings", s.name, value.JSON[Settings](), func(_ context.Context, v value.Versioned[Settings]) error {
		s.settings.Store(&v.Value)
		return nil
	})
}

// nightly writes a report every night, in one of the processes.
func (s *service) nightly(ctx context.Context) error {
	return job.Run(ctx, s.node, "/service/jobs", job.Job{
		Name: "report", Schedule: job.Every(nightTime), Crash: job.AtLeastOnce,
		Run: func(_ context.Context, night *job.Tick) error {
			fmt.Println(s.name, "writes the report of", night.Time.Format(time.TimeOnly))
			return nil
		},
	})
}

var shops = []string{"Athens", "Berlin", "Dublin", "Lisbon", "London", "Madrid", "Paris", "Rome", "Vienna"}

// work looks after this process's share of the shops.
func (s *service) work(ctx context.Context) error {
	return partition.Run(ctx, s.node, "/service/shops", shops, partition.Options{ID: s.name}, func(ctx context.Context, shop string, _ *lock.Hold) error {
		<-ctx.Done() // instead of work; when this returns, another process may have the shop
		return nil
	})
}

//go:embed page.html
var text string

var page = template.Must(template.New("page").Parse(text))

// ServeHTTP shows what the ensemble knows of all processes.
func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	session, err := s.node.NewSession(r.Context(), embed.SessionOptions{})
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	defer session.Close()
	leader, err1 := election.New(session, "/service/leader").Leader(r.Context())
	if errors.Is(err1, election.ErrNoLeader) {
		err1 = nil // the last one is dead, and the next one comes soon
	}
	owners, err2 := partition.Owners(r.Context(), session, "/service/shops")
	reports, err3 := job.History(r.Context(), session, "/service/jobs", "report")
	processes, err4 := group.Watch(r.Context(), session, "/service/processes", group.Options{})
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	_ = page.Execute(w, map[string]any{"Name": s.name, "Leader": string(leader.Value), "Settings": s.settings.Load(),
		"Processes": processes.Members(), "Shops": owners, "Reports": reports})
}
