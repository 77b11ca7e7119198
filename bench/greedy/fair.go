//go:build linux

package main

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/vivarium-go/vivarium/bench/internal/measure"
)

// A fair client asks for little. It is used by one goroutine, and read when that has ended.
type fair struct {
	name   string
	took   measure.Histogram
	most   time.Duration
	slow   int // of the requests that took too long
	failed int
	last   error
}

// measure does something again and again, with pauses.
func (f *fair) measure(ctx context.Context, pause time.Duration, ask func() error) {
	for ; ctx.Err() == nil; sleep(ctx, pause) {
		begin := time.Now()
		err := ask()
		took := time.Since(begin)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			f.failed, f.last = f.failed+1, err
			continue
		case took > slow:
			f.slow++
		}
		f.took.Record(took)
		f.most = max(f.most, took)
	}
}

func (f *fair) String() string {
	text := fmt.Sprintf("%-28s %6d well, p50 %v, p99 %v, most %v, %d took more than %v, %d failed",
		f.name, f.took.Count(), f.took.Quantile(0.5).Round(time.Microsecond), f.took.Quantile(0.99).Round(time.Microsecond), f.most.Round(time.Millisecond), f.slow, slow, f.failed)
	if f.last != nil {
		text += fmt.Sprintf(" (the last: %v)", f.last)
	}
	return text
}

// beFair runs fair clients of every member until the ctx ends: one that stays and writes, one that comes
// anew for each write, and one of the admin port.
func beFair(ctx context.Context, all []*member) (list []*fair) {
	var wg sync.WaitGroup
	add := func(name string, pause time.Duration, ask func() error) {
		f := &fair{name: name}
		list = append(list, f)
		wg.Go(func() { f.measure(ctx, pause, ask) })
	}
	for i, m := range all {
		add(fmt.Sprintf("member %d, a write", i+1), 50*time.Millisecond, writer(m))
		add(fmt.Sprintf("member %d, a new session", i+1), time.Second, func() error {
			s, err := openSession(m.gateway, "127.0.0.2")
			if err != nil {
				return err
			}
			defer s.close()
			return s.call(set("/fair", nil))
		})
		add(fmt.Sprintf("member %d, its status", i+1), time.Second, func() error { return status(m) })
	}
	wg.Wait()
	return list
}

// writer returns a write of a session that is opened when it is needed.
func writer(m *member) func() error {
	var s *session
	return func() (err error) {
		if s == nil {
			if s, err = openSession(m.gateway, "127.0.0.3"); err != nil {
				s = nil
				return err
			}
		}
		if err = s.call(set("/fair", []byte("fair"))); err != nil {
			s.close()
			s = nil
		}
		return err
	}
}

func status(m *member) error {
	client := http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	r, err := http.NewRequest(http.MethodGet, "http://"+m.admin+"/v1/status", nil)
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+token)
	a, err := client.Do(r)
	if err != nil {
		return err
	}
	defer a.Body.Close()
	if a.StatusCode != http.StatusOK {
		return fmt.Errorf("status: %s", a.Status)
	}
	return nil
}
