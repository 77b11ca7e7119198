package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/vivarium-go/vivarium/embed"
)

const (
	followBuffer = 4096             // events for a caller that reads slowly
	followBeat   = 15 * time.Second // between empty lines, by which both sides see that the other lives
)

type eventLine struct {
	Type string `json:"type"`
	Path string `json:"path"`
	Zxid string `json:"zxid"`
}

// eventTypes are ZooKeeper's names.
var eventTypes = map[embed.EventType]string{
	embed.NodeCreated: "created", embed.NodeDeleted: "deleted", embed.NodeDataChanged: "changed", embed.NodeChildrenChanged: "children",
}

// follow sends a line for each change of a subtree, until the caller goes away or the watch ends.
func (c *call) follow() error {
	path, err := c.znode()
	if err != nil {
		return err
	}
	return c.with(func(ctx context.Context, s *embed.Session) error {
		w, err := s.WatchWith(ctx, path, embed.WatchRecursive, embed.WatchOptions{Buffer: followBuffer})
		if err != nil {
			return err
		}
		defer w.Close()
		f := &follower{out: c.stream("application/x-ndjson")}
		if f.line(map[string]string{"follows": path, "zxid": zxid(w.Zxid())}); f.err == nil {
			f.run(ctx, w, c.stillGranted)
		}
		if errors.Is(f.err, errors.ErrUnsupported) {
			return fmt.Errorf("the service has wrapped the ResponseWriter, and nothing can be sent at once: %w", f.err)
		}
		return nil // the last line has said why, or nobody is there to be told
	})
}

// A follower writes the lines of a follow.
type follower struct {
	out *stream
	err error // of the writer
}

func (f *follower) line(v any) {
	text, err := json.Marshal(v)
	if err != nil {
		f.err = err
		return
	}
	f.send(append(text, '\n'))
}

func (f *follower) send(text []byte) {
	if _, f.err = f.out.Write(text); f.err == nil {
		f.err = f.out.flush()
	}
}

// stillGranted returns why the request would not be answered any more, if it came now.
func (c *call) stillGranted() error {
	g, err := c.h.admit(c.r)
	if err == nil && !reflect.DeepEqual(g, c.grant) {
		err = errors.New("the grant has changed")
	}
	return err
}

// run writes what the watch sees. With each beat it asks whether it still may.
func (f *follower) run(ctx context.Context, w *embed.Watch, granted func() error) {
	beat := time.NewTicker(followBeat)
	defer beat.Stop()
	for f.err == nil {
		select {
		case <-ctx.Done():
			return
		case <-beat.C:
			if why := granted(); why != nil {
				f.end(why)
				return
			}
			f.send([]byte{'\n'})
		case e, ok := <-w.Events():
			if !ok {
				f.end(w.Err())
				return
			}
			f.line(eventLine{eventTypes[e.Type], e.Path, zxid(e.Zxid)})
		}
	}
}

// end writes why no more lines follow. Whoever wants to go on reads the znodes and follows again.
func (f *follower) end(why error) {
	text := "closed"
	if why != nil {
		text = why.Error()
	}
	f.line(map[string]string{"end": text})
}
