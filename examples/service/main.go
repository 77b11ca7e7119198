// Service is three processes that share the work of a service. They elect a leader, know who is
// here, follow settings, write a report every night, and divide a set of shops among themselves.
// Each has a page that shows all of that; its address is printed.
//
//	go run ./examples/service
//	go run ./examples/service -show 30s
//
// It runs until it is interrupted, or for the time of a show. During a show the process that leads
// is killed after a third of the time, and started again at half time.
// service.go is what a service would have. The rest is in examples/internal/replicas.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/vivarium-go/vivarium/examples/internal/replicas"
)

func main() {
	length := flag.Duration("show", 0, "how long it runs, while the leader dies and comes back; 0: it runs until it is stopped")
	flag.Parse()
	mine, err := replicas.Serve(serve)
	if !mine {
		err = run(*length)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// run runs the processes until a signal, or for the length of a show.
func run(show time.Duration) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if show <= 0 {
		fmt.Println("it runs until you stop it with Ctrl-C")
		return replicas.Run(ctx, os.Stdout, nil, nil)
	}
	ctx, cancel := context.WithTimeout(ctx, show)
	defer cancel()
	return replicas.Run(ctx, os.Stdout, time.After(show/3), time.After(show/2))
}
