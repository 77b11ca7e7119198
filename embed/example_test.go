package embed_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/vivarium-go/vivarium/embed"
)

// start starts a node that is its own ensemble, and opens a session. It is patient: a machine that
// runs tests may be busy.
func start() (n *embed.Node, s *embed.Session, end func()) {
	dir, err := os.MkdirTemp("", "example-")
	if err != nil {
		log.Fatal(err)
	}
	n, err = embed.Start(embed.Config{Dir: dir, RequestTimeout: time.Minute, SessionTimeout: time.Minute, Logger: slog.New(slog.DiscardHandler)})
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

// The pods of a Deployment have no order, so something that outlives them says which one founds the
// ensemble. Here that is a ConfigMap, which Kubernetes creates once. It has the name of the pod
// that was told to found, because that pod may crash before it has founded, and ask again.
func ExampleConfig_found() {
	found := func(api, token, pod string) func(context.Context) (bool, error) {
		const name = "svc-founded"
		call := func(ctx context.Context, method, path string, body any) (status int, pod string, err error) {
			text, err := json.Marshal(body)
			if err != nil {
				return 0, "", err
			}
			request, err := http.NewRequestWithContext(ctx, method, api+path, bytes.NewReader(text))
			if err != nil {
				return 0, "", err
			}
			request.Header.Set("Authorization", "Bearer "+token)
			request.Header.Set("Content-Type", "application/json")
			answer, err := http.DefaultClient.Do(request)
			if err != nil {
				return 0, "", err
			}
			defer answer.Body.Close()
			var there struct{ Data struct{ Pod string } }
			err = json.NewDecoder(answer.Body).Decode(&there)
			return answer.StatusCode, there.Data.Pod, err
		}
		return func(ctx context.Context) (bool, error) {
			const maps = "/api/v1/namespaces/default/configmaps"
			status, _, err := call(ctx, http.MethodPost, maps, map[string]any{
				"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]string{"name": name}, "data": map[string]string{"pod": pod}})
			if err != nil || status == http.StatusCreated {
				return err == nil, err
			}
			if status != http.StatusConflict { // somebody created it before
				return false, fmt.Errorf("create the ConfigMap %s: %s", name, http.StatusText(status))
			}
			_, who, err := call(ctx, http.MethodGet, maps+"/"+name, nil)
			return err == nil && who == pod, err
		}
	}

	kubernetes := httptest.NewServer(configMaps())
	defer kubernetes.Close()
	for _, pod := range []string{"svc-7c5b", "svc-x2k9", "svc-7c5b"} {
		fmt.Println(found(kubernetes.URL, "token", pod)(context.Background()))
	}
	cfg := embed.Config{Dir: "/var/lib/svc/vivarium", Join: []string{"svc:7400"}, Advertise: "10.1.0.7:7400", Name: "svc-7c5b",
		Ephemeral: true, Found: found(kubernetes.URL, "token", "svc-7c5b")}
	fmt.Println(cfg.Validate())
	// Output:
	// true <nil>
	// false <nil>
	// true <nil>
	// <nil>
}

// configMaps answers like the API of Kubernetes for one ConfigMap.
func configMaps() http.Handler {
	var mu sync.Mutex
	var there []byte
	mux := http.NewServeMux()
	mux.HandleFunc("POST /api/v1/namespaces/default/configmaps", func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if there != nil {
			w.WriteHeader(http.StatusConflict)
			fmt.Fprint(w, `{"kind": "Status"}`)
			return
		}
		there, _ = io.ReadAll(r.Body)
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write(there)
	})
	mux.HandleFunc("GET /api/v1/namespaces/default/configmaps/svc-founded", func(w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		_, _ = w.Write(there)
	})
	return mux
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

// A service reads its configuration when it starts, before there is a quorum. What it reads may be
// stale.
func ExampleNode_Peek() {
	node, session, end := start()
	defer end()
	ctx := context.Background()
	if _, err := session.Put(ctx, "/service/config", []byte("workers: 8")); err != nil { // creates /service too
		log.Fatal(err)
	}
	config, _, err := node.Peek().Get("/service/config")
	switch {
	case errors.Is(err, embed.ErrJoining):
		fmt.Println("this node is new, so it starts with its defaults")
	case err != nil:
		log.Fatal(err)
	default:
		fmt.Printf("%s\n", config)
	}
	// Output: workers: 8
}
