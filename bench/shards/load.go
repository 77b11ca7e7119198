//go:build unix

package main

import (
	"errors"
	"slices"
	"sync"
	"syscall"
	"time"
)

// load is what a number of writers saw.
type load struct {
	Rate     float64       // writes a second
	P50, P99 time.Duration // of a write
	CPU      float64       // cores
}

// warmup is how long the writers write before anything counts.
const warmup = 300 * time.Millisecond

// measureLoad has n writers write, each one write after the other.
func measureLoad(e ensemble, n int, window time.Duration) (load, error) {
	writers := make([]func() error, n)
	for i := range writers {
		var err error
		if writers[i], err = e.writer(i); err != nil {
			return load{}, err
		}
	}
	var (
		wg    sync.WaitGroup
		took  = make([][]time.Duration, n)
		errs  = make([]error, n)
		begin = time.Now().Add(warmup)
		end   = begin.Add(window)
	)
	for i, write := range writers {
		wg.Go(func() { took[i], errs[i] = repeat(write, begin, end) })
	}
	time.Sleep(time.Until(begin))
	cpu := cpuTime()
	time.Sleep(time.Until(end))
	cpu = cpuTime() - cpu
	wg.Wait()
	all := slices.Concat(took...)
	slices.Sort(all)
	if len(all) == 0 {
		return load{}, errors.Join(append(errs, errors.New("no write in the whole time"))...)
	}
	return load{
		Rate: float64(len(all)) / window.Seconds(), CPU: cpu.Seconds() / window.Seconds(),
		P50: all[len(all)/2], P99: all[len(all)*99/100],
	}, errors.Join(errs...)
}

// repeat writes until the end, and returns how long the writes took that ended after the beginning and before the end.
func repeat(write func() error, begin, end time.Time) (took []time.Duration, err error) {
	for {
		from := time.Now()
		if err := write(); err != nil {
			return took, err
		}
		now := time.Now()
		if now.After(end) {
			return took, nil
		}
		if now.After(begin) {
			took = append(took, now.Sub(from))
		}
	}
}

// cpuTime is what this process has used of all cores.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
