// Cluster settles 1,000 orders with three processes, each of which embeds one member of an
// ensemble. In the middle of the work it kills the process that leads.
//
//	go run ./examples/cluster
//	go run ./examples/cluster -scale
//
// The parent starts processes of this program and keeps a ledger that they reach over loopback.
// The processes elect a dispatcher, which puts the orders into a queue. Workers claim them, settle
// each under the lock of its account, and show the ledger the lock's token.
//
// At two fifths of the work the parent kills the process that leads. At that moment the process
// holds a lock, and its order is booked but still in the queue. Then the parent starts the process
// again.
//
// With -scale one process founds the ensemble, and the service grows to three and to seven while
// orders are settled. A voter is killed and its directory wiped, and two members leave. One of them
// is the founder.
//
// At the end the parent compares every balance with a plain run over the orders. A service would
// write what is in service.go and member.go. The resource that it protects is in ledger.go. show.go
// has what happens to the processes, and verdict.go what must have come of it.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// memberCommand is the argument that makes a process of this program a member instead of the
// parent.
const memberCommand = "member"

func main() {
	if len(os.Args) == 2 && os.Args[1] == memberCommand {
		os.Exit(member(os.Stdin, os.Stderr))
	}
	o := options{orders: 1000}
	flag.BoolVar(&o.scale, "scale", false, "let processes join, lose a directory, and leave, instead of killing the leader")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "cluster: unexpected argument %q\n", flag.Arg(0))
		os.Exit(2)
	}
	// Ctrl-C makes the parent end the run in an orderly way. The members ignore it and end with
	// their parent.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1)
	}
}
