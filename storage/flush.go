package storage

import "time"

// A flow counts the bytes that were committed to an image and those that reached the disk. It lets
// a flush begin early enough that a Sync finds almost nothing to do. The image's mu guards it.
//
// Invariant: flushed <= begun <= committed, in bytes since the live store was opened.
type flow struct {
	committed, begun, flushed int64

	armed    bool            // flushLoop knows of a commit since the last flush began
	done     <-chan struct{} // closed at the end of the last flush that began; nil before the first
	progress chan struct{}   // closed and replaced when flushed grows
	durable  uint64          // the index covered by the last flush
}

// newFlow returns the flow of a store that has nothing unflushed.
func newFlow(durable uint64) flow { return flow{progress: make(chan struct{}), durable: durable} }

// committed counts a commit of n bytes. The caller holds mu.
func (i *Image) committed(n int) {
	f := &i.mu.flow
	f.committed += int64(n)
	if !f.armed {
		f.armed = true
		notify(i.dirty)
	}
	if f.committed-f.begun >= int64(i.o.FlushBytes) {
		notify(i.full)
	}
}

func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// waitForRoom waits while too much is unflushed, unless waiting cannot help.
func (i *Image) waitForRoom() {
	var limit <-chan time.Time
	for {
		i.mu.Lock()
		over := i.mu.flow.committed-i.mu.flow.flushed > int64(i.o.UnflushedMax)
		progress := i.mu.flow.progress
		i.mu.Unlock()
		if !over {
			return
		}
		if limit == nil {
			limit = time.After(i.o.CommitWait)
		}
		notify(i.full)
		select {
		case <-progress:
		case <-limit:
			return
		case <-i.closing:
			return
		case <-i.o.Disk.Failed():
			return
		}
	}
}

// flushLoop flushes when enough was committed or enough time has passed. It ends at Close, or when
// the disk fails.
func (i *Image) flushLoop() {
	var timer <-chan time.Time
	for {
		select {
		case <-i.dirty:
			timer = time.After(i.o.FlushInterval)
			continue
		case <-i.full:
		case <-timer:
		case <-i.o.Disk.Failed():
			return
		case <-i.closing:
			return
		}
		if err := i.flush(); err != nil {
			i.o.Logger.Warn("the image is no longer flushed", "dir", i.o.Dir, "cause", err)
			return
		}
	}
}

// flush writes out everything committed before the call. It waits until the disk has it or has
// failed. If the disk has failed, flush returns the cause: after the switch, even a flush that
// completed has reached memory only.
func (i *Image) flush() error {
	i.mu.Lock()
	s, f := i.mu.live, &i.mu.flow
	if s == nil || f.flushed == f.committed {
		i.mu.Unlock()
		return i.o.Disk.Err()
	}
	if f.begun < f.committed {
		done, err := s.db.AsyncFlush()
		if err != nil {
			i.mu.Unlock()
			return err
		}
		f.begun, f.done, f.armed = f.committed, done, false
	}
	done, bytes, index := f.done, f.begun, i.mu.applied
	s.acquire()
	i.mu.Unlock()

	select {
	case <-done:
	case <-i.o.Disk.Failed():
	}
	err := i.o.Disk.Err()
	if err == nil {
		i.flushed(s, bytes, index)
	}
	s.release()
	return err
}

// flushed records that a flush of s is complete.
func (i *Image) flushed(s *store, bytes int64, index uint64) {
	i.mu.Lock()
	defer i.mu.Unlock()
	f := &i.mu.flow
	if i.mu.live != s || bytes <= f.flushed {
		return
	}
	f.flushed, f.durable = bytes, index
	close(f.progress)
	f.progress = make(chan struct{})
}

// Sync returns nil once everything committed before the call is durable. If the disk fails, Sync
// returns the cause without waiting any longer.
func (i *Image) Sync() error {
	if err := i.ready(); err != nil {
		return err
	}
	i.pointing.Lock()
	defer i.pointing.Unlock()
	if err := stopped(nil, i.closing); err != nil {
		return err
	}
	return i.sync()
}

// sync is Sync for a caller that holds pointing. It records the index in the pointer file. If the
// image loses that index later, it is known to be corrupt.
func (i *Image) sync() error {
	if err := i.flush(); err != nil {
		return err
	}
	i.mu.Lock()
	p, durable := i.mu.pointer, i.mu.flow.durable
	i.mu.Unlock()
	if durable == p.synced {
		return nil
	}
	p.synced = durable
	if err := i.layout.writePointer(p); err != nil {
		return err
	}
	i.mu.Lock()
	i.mu.pointer = p
	i.mu.Unlock()
	return i.o.Disk.Err()
}
