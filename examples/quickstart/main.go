// Quickstart starts one node in this process and runs a function under a lock.
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/lock"
)

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "vivarium-quickstart-") // a service names a directory that stays
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	node, err := embed.Start(embed.Config{Dir: dir})
	if err != nil {
		return err
	}
	defer node.Close()
	return lock.Do(ctx, node, "/locks/report", func(ctx context.Context, t lock.Token) error {
		fmt.Println("this process alone writes the report; its token is", t)
		return nil
	})
}
