// Keeper starts a node on a directory, checks what earlier runs have left there, and leaves
// something of its own: keeper DIR RUN. The tests build it with and without cgo.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strconv"
	"strings"

	"github.com/vivarium-go/vivarium/embed"
)

// znodes is how many znodes a run leaves: several blocks of the image.
const znodes = 200

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: keeper DIR RUN")
	}
	run, err := strconv.Atoi(os.Args[2])
	if err == nil {
		err = keep(context.Background(), os.Args[1], run)
	}
	if err != nil {
		log.Fatal(err)
	}
}

func keep(ctx context.Context, dir string, run int) error {
	node, err := embed.Start(embed.Config{Dir: dir})
	if err != nil {
		return err
	}
	defer node.Close()
	s, err := node.NewSession(ctx, embed.SessionOptions{})
	if err != nil {
		return err
	}
	for earlier := range run {
		for i := range znodes {
			if data, _, err := s.Get(ctx, path(earlier, i)); err != nil || string(data) != content(earlier, i) {
				return fmt.Errorf("%s holds %d bytes, %v", path(earlier, i), len(data), err)
			}
		}
	}
	for i := range znodes {
		if _, err := s.Create(ctx, path(run, i), []byte(content(run, i)), embed.Persistent); err != nil {
			return err
		}
	}
	return node.Shutdown(ctx)
}

func path(run, i int) string { return fmt.Sprintf("/run-%d-%d", run, i) }

func content(run, i int) string { return strings.Repeat(fmt.Sprintf("%d of run %d, ", i, run), 100) }
