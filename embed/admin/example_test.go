package admin_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/admin"
)

// A service mounts the handler below a path of its own server.
func Example() {
	dir, err := os.MkdirTemp("", "admin")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	node, err := embed.Start(embed.Config{Dir: dir, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		log.Fatal(err)
	}
	defer node.Close()
	if err := node.Ready(context.Background()); err != nil {
		log.Fatal(err)
	}

	handler, err := admin.New(node, admin.Options{Authorize: admin.Open})
	if err != nil {
		log.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/vivarium/", http.StripPrefix("/vivarium", handler))

	for _, r := range []*http.Request{
		httptest.NewRequest(http.MethodGet, "http://localhost/vivarium/v1/znode?path=/&view=children", nil),
		httptest.NewRequest(http.MethodGet, "http://evil.example/vivarium/v1/status", nil),
		httptest.NewRequest(http.MethodPost, "http://localhost/vivarium/v1/znode?path=/a", nil),
	} {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		fmt.Print(w.Code, " ", w.Body)
	}
	// Output:
	// 200 {"path":"/","children":["zookeeper"]}
	// 421 {"error":"this is not the host \"evil.example\": Options.Hosts has the names that may be asked"}
	// 403 {"error":"it takes the role editor, and anybody has the role \"viewer\""}
}
