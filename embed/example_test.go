package embed_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"strconv"
	"strings"

	"github.com/vivarium-go/vivarium/embed"
)

// start starts a node that is its own ensemble, and opens a session.
func start() (n *embed.Node, s *embed.Session, end func()) {
	dir, err := os.MkdirTemp("", "example-")
	if err != nil {
		log.Fatal(err)
	}
	n, err = embed.Start(embed.Config{Dir: dir, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		log.Fatal(err)
	}
	if s, err = n.NewSession(context.Background(), embed.SessionOptions{}); err != nil {
		log.Fatal(err)
	}
	return n, s, func() { _ = n.Close(); _ = os.RemoveAll(dir) }
}

func ExampleStart() {
	dir, err := os.MkdirTemp("", "example-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	node, err := embed.Start(embed.Config{Dir: dir, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		log.Fatal(err)
	}
	defer node.Close()
	ctx := context.Background()
	if err := node.Ready(ctx); err != nil { // waits for a quorum; Start does not
		log.Fatal(err)
	}
	session, err := node.NewSession(ctx, embed.SessionOptions{})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := session.Create(ctx, "/greeting", []byte("hello"), embed.Persistent); err != nil {
		log.Fatal(err)
	}
	data, stat, err := session.Get(ctx, "/greeting")
	fmt.Printf("%s, version %d, %v\n", data, stat.Version, err)
	// Output: hello, version 0, <nil>
}

func ExampleReadConfig() {
	cfg, err := embed.ReadConfig(strings.NewReader(`
dir: /var/lib/service/vivarium
id: 2
members:
  1: 10.0.0.1:7400
  2: 10.0.0.2:7400
  3: 10.0.0.3:7400
tick: 50ms
`))
	fmt.Println(cfg.ID, len(cfg.Members), cfg.Tick, err)
	fmt.Println(cfg.Validate())
	// Output:
	// 2 3 50ms <nil>
	// <nil>
}

// The pods of a StatefulSet are vivarium-0, vivarium-1, and so on, and member ids begin at 1. The
// config is the same in every pod; each pod finds its ID in its host name, which os.Hostname
// returns. The headless Service of the pods needs publishNotReadyAddresses: without it no pod finds
// another before it is ready, or is ready before it has found another.
func ExampleConfig_statefulSet() {
	memberOf := func(hostname string) (embed.MemberID, error) {
		ordinal, err := strconv.ParseUint(hostname[strings.LastIndexByte(hostname, '-')+1:], 10, 32)
		return embed.MemberID(ordinal + 1), err
	}
	id, err := memberOf("vivarium-2")
	if err != nil {
		log.Fatal(err)
	}
	cfg := embed.Config{Dir: "/var/lib/service/vivarium", ID: id, Members: make(map[embed.MemberID]string)}
	for ordinal := range embed.MemberID(3) {
		cfg.Members[ordinal+1] = fmt.Sprintf("vivarium-%d.vivarium:7400", ordinal)
	}
	fmt.Println(cfg.ID, cfg.Members[cfg.ID], cfg.Validate())
	// Output: 3 vivarium-2.vivarium:7400 <nil>
}

func ExampleSession_Multi() {
	_, session, end := start()
	defer end()
	ctx := context.Background()
	_, err := session.Multi(ctx,
		embed.OpCreate("/orders", nil, embed.Persistent),
		embed.OpCreate("/orders/order-", []byte("10 tulips"), embed.Sequential),
	)
	fmt.Println(err)

	_, err = session.Multi(ctx,
		embed.OpSet("/orders", []byte("closed"), embed.AnyVersion),
		embed.OpDelete("/orders/order-0000000007", embed.AnyVersion),
	)
	var multi *embed.MultiError
	if errors.As(err, &multi) {
		fmt.Println("operation", multi.Index, "was refused:", errors.Is(err, embed.ErrNoNode))
	}
	data, _, err := session.Get(ctx, "/orders")
	fmt.Printf("nothing was set: %q, %v\n", data, err)
	// Output:
	// <nil>
	// operation 1 was refused: true
	// nothing was set: "", <nil>
}

func ExampleSession_Watch() {
	_, session, end := start()
	defer end()
	ctx := context.Background()
	// The znode need not exist yet.
	watch, err := session.Watch(ctx, "/config", embed.WatchPersistent)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := session.Create(ctx, "/config", []byte("a"), embed.Persistent); err != nil {
		log.Fatal(err)
	}
	if _, err := session.Set(ctx, "/config", []byte("b"), 0); err != nil {
		log.Fatal(err)
	}
	_ = watch.Close() // or the loop would wait for events
	for event := range watch.Events() {
		fmt.Println(event.Type, event.Path)
	}
	fmt.Println(watch.Err())
	// Output:
	// NodeCreated /config
	// NodeDataChanged /config
	// <nil>
}

// To follow a znode, arm a watch, read the znode, and read it again at every event: whatever
// changes in between has an event. When a watch ends with a gap or an overflow, begin again. Any
// other end is the session's.
func ExampleSession_Watch_follow() {
	_, session, end := start()
	defer end()
	once := func(ctx context.Context, path string, changed func(data []byte)) error {
		watch, err := session.Watch(ctx, path, embed.WatchPersistent)
		if err != nil {
			return err
		}
		defer watch.Close()
		for {
			data, _, err := session.Get(ctx, path)
			if err != nil && !errors.Is(err, embed.ErrNoNode) { // the znode need not exist yet
				return err
			}
			changed(data)
			select {
			case _, open := <-watch.Events():
				if !open {
					return watch.Err()
				}
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	follow := func(ctx context.Context, path string, changed func(data []byte)) error {
		for {
			err := once(ctx, path, changed)
			if !errors.Is(err, embed.ErrWatchGap) && !errors.Is(err, embed.ErrWatchOverflow) {
				return err
			}
		}
	}

	ctx, cancel := context.WithCancel(context.Background())
	if _, err := session.Create(ctx, "/config", []byte("rate=10"), embed.Persistent); err != nil {
		log.Fatal(err)
	}
	err := follow(ctx, "/config", func(data []byte) {
		fmt.Printf("%s\n", data)
		if string(data) == "rate=20" {
			cancel()
		} else if _, err := session.Set(ctx, "/config", []byte("rate=20"), 0); err != nil { // somebody else's, as a rule
			log.Fatal(err)
		}
	})
	fmt.Println(err)
	// Output:
	// rate=10
	// rate=20
	// context canceled
}

func ExampleSession_Create_ephemeral() {
	node, session, end := start()
	defer end()
	ctx := context.Background()
	if _, err := session.Create(ctx, "/worker", []byte("10.0.0.1:80"), embed.Ephemeral); err != nil {
		log.Fatal(err)
	}
	if err := session.Close(); err != nil {
		log.Fatal(err)
	}
	other, err := node.NewSession(ctx, embed.SessionOptions{})
	if err != nil {
		log.Fatal(err)
	}
	_, ok, err := other.Exists(ctx, "/worker")
	fmt.Println(ok, err)
	// Output: false <nil>
}
