package audit_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/audit"
)

// Who deleted this znode?
func ExampleSearch() {
	dir, err := os.MkdirTemp("", "audit")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	records := filepath.Join(dir, "audit")
	journal, err := audit.Open(audit.Config{Dir: records})
	if err != nil {
		log.Fatal(err)
	}
	node, err := embed.Start(embed.Config{
		Dir: filepath.Join(dir, "data"), Audit: journal.Record, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	alice, err := node.NewSession(ctx, embed.SessionOptions{
		Auth: []embed.Auth{{Scheme: "digest", Credential: []byte("alice:secret")}},
	})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := alice.Put(ctx, "/limits", []byte("10")); err != nil {
		log.Fatal(err)
	}
	if err := alice.Delete(ctx, "/limits", embed.AnyVersion); err != nil {
		log.Fatal(err)
	}
	if err := node.Shutdown(ctx); err != nil { // waits for the last records
		log.Fatal(err)
	}
	if err := journal.Close(); err != nil {
		log.Fatal(err)
	}
	for r, err := range audit.Search(records, audit.Query{Path: "/limits"}) {
		if err != nil {
			log.Fatal(err)
		}
		if r.Path != "" {
			fmt.Println(r.Op, r.Path, r.Identities, r.Result)
		}
	}
	// Output:
	// create /limits [digest:alice] ok
	// delete /limits [digest:alice] ok
}
