package view_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"maps"
	"os"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/value"
	"github.com/vivarium-go/vivarium/embed/view"
)

// start starts a node that is an ensemble by itself, and opens a session.
func start(ctx context.Context) (s *embed.Session, end func()) {
	dir, err := os.MkdirTemp("", "example-")
	if err != nil {
		log.Fatal(err)
	}
	n, err := embed.Start(embed.Config{
		Dir: dir, Tick: 10 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
		RequestTimeout: time.Minute, SessionTimeout: time.Minute, // a machine that runs tests may be busy
	})
	if err != nil {
		log.Fatal(err)
	}
	s, err = n.NewSession(ctx, embed.SessionOptions{})
	if err != nil {
		log.Fatal(err)
	}
	return s, func() { _ = n.Close(); _ = os.RemoveAll(dir) }
}

type service struct{ Address string }

func ExampleOpen() {
	ctx := context.Background()
	session, end := start(ctx)
	defer end()
	_, err := session.Multi(ctx,
		embed.OpCreate("/services", nil, embed.Persistent),
		embed.OpCreate("/services/billing", []byte(`{"Address": "10.0.0.1:80"}`), embed.Persistent),
		embed.OpCreate("/services/search", []byte(`{"Address": "10.0.0.2:80"}`), embed.Persistent),
	)
	if err != nil {
		log.Fatal(err)
	}
	v, err := view.Open(ctx, session, "/services", view.Options[service]{Codec: value.JSON[service](), Depth: 1})
	if err != nil {
		log.Fatal(err)
	}
	defer v.Close()
	for path, e := range v.All() {
		fmt.Println(path, e.Value.Address)
	}
	e, ok := v.Get("/services/mail")
	fmt.Println(e.Value.Address, ok)
	// Output:
	// /services/billing 10.0.0.1:80
	// /services/search 10.0.0.2:80
	//  false
}

// The loop keeps up with a view, also if it is slow.
func ExampleView_Changes() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	session, end := start(ctx)
	defer end()
	if _, err := session.Create(ctx, "/flags", []byte("off"), embed.Persistent); err != nil {
		log.Fatal(err)
	}
	v, err := view.Open(ctx, session, "/flags", view.Options[string]{})
	if err != nil {
		log.Fatal(err)
	}
	defer v.Close()

	follow := func(replace func(all map[string]view.Entry[string]), change func(view.Change[string])) error {
		var since embed.Zxid // no view has all changes since zero, so the loop begins with a gap
		for {
			for c, err := range v.Changes(ctx, since) {
				if gap, ok := errors.AsType[*embed.GapError](err); ok {
					since = gap.Zxid
					replace(maps.Collect(v.All())) // some of its changes come again
					break
				}
				if err != nil {
					return err
				}
				change(c)
			}
		}
	}
	err = follow(func(all map[string]view.Entry[string]) {
		fmt.Println("the flag is", all["/flags"].Value)
		if _, err := session.Set(ctx, "/flags", []byte("on"), 0); err != nil { // somebody else's, as a rule
			log.Fatal(err)
		}
	}, func(c view.Change[string]) {
		fmt.Println("the flag was", c.Old.Value, "and is", c.New.Value)
		cancel()
	})
	fmt.Println(errors.Is(err, context.Canceled))
	// Output:
	// the flag is off
	// the flag was off and is on
	// true
}

func ExampleView_Await() {
	ctx := context.Background()
	session, end := start(ctx)
	defer end()
	v, err := view.Open(ctx, session, "/config", view.Options[string]{})
	if err != nil {
		log.Fatal(err)
	}
	defer v.Close()
	_, stat, err := session.CreateWith(ctx, "/config", []byte("rate=20"), embed.CreateOptions{})
	if err != nil {
		log.Fatal(err)
	}
	// Another process may do this too, if it is told the zxid.
	if err := v.Await(ctx, stat.Mzxid); err != nil {
		log.Fatal(err)
	}
	e, _ := v.Get("/config")
	fmt.Println(e.Value)
	// Output:
	// rate=20
}
