package backup_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/backup"
)

// A backup is a file. What it has can be verified, shown, and created again.
func Example() {
	dir, err := os.MkdirTemp("", "backup")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()
	node, err := embed.Start(embed.Config{Dir: filepath.Join(dir, "data")})
	if err != nil {
		log.Fatal(err)
	}
	defer node.Close()
	session, err := node.NewSession(ctx, embed.SessionOptions{})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := session.Put(ctx, "/config/limit", []byte("10")); err != nil {
		log.Fatal(err)
	}

	file, err := os.Create(filepath.Join(dir, "tree.backup"))
	if err != nil {
		log.Fatal(err)
	}
	defer file.Close()
	if _, err := node.Backup(ctx, file); err != nil {
		log.Fatal(err)
	}

	if _, err := session.Put(ctx, "/config/limit", []byte("a mistake")); err != nil {
		log.Fatal(err)
	}
	if _, err := file.Seek(0, 0); err != nil {
		log.Fatal(err)
	}
	r, err := backup.NewReader(file)
	if err != nil {
		log.Fatal(err)
	}
	report, err := backup.Import(ctx, backup.Session(session), r.Znodes(),
		backup.Options{Path: "/config", Existing: backup.Overwrite})
	if err != nil {
		log.Fatal(err)
	}
	data, _, err := session.Get(ctx, "/config/limit")
	fmt.Printf("%v\n%s %v\n", report, data, err)
	// Output:
	// 0 created, 1 overwritten, 1 existed, 0 deleted, 0 kept, 0 ephemerals left out
	// 10 <nil>
}
