// Service is three processes that share the work of a service. They elect a leader, know who is
// here, follow settings, write a report every night, and divide a set of shops among themselves.
// Each has a page that shows all of that; its address is printed.
//
//	go run ./examples/service
//	go run ./examples/service -for 10m
//
// The process that leads is killed after a third of the time, and started again at half time.
// service.go is what a service would have. The rest is in examples/internal/replicas.
package main

import (
	"flag"
	"log"
	"os"
	"time"

	"github.com/vivarium-go/vivarium/examples/internal/replicas"
)

func main() {
	length := flag.Duration("for", 30*time.Second, "how long it runs")
	flag.Parse()
	mine, err := replicas.Serve(serve)
	if !mine {
		err = replicas.Run(os.Stdout, time.After(*length/3), time.After(*length/2), time.After(*length))
	}
	if err != nil {
		log.Fatal(err)
	}
}
