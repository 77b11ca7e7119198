// Cluster settles a file of orders with three processes, each of which embeds one member of an
// ensemble. In the middle of the work it kills the process that leads.
//
//	go run ./examples/cluster
//	go run ./examples/cluster -shards 4
//	go run ./examples/cluster -input orders.csv
//	go run ./examples/cluster -scale
//
// The parent starts three processes of itself and keeps a ledger that they reach over loopback
// HTTP. The processes elect a dispatcher, which distributes the orders through znodes. Workers
// settle each order under the lock of its account and show the ledger the lock's token.
//
// At two fifths of the work the parent kills the process that leads the first shard. (There is only
// one shard, unless -shards says otherwise.) At that moment the process holds a lock, and has
// booked an order but not recorded that it is done. Later the parent starts the process again.
//
// With -scale one process founds the ensemble, and the service grows to three and to seven while
// orders are settled. A voter is killed and its directory wiped, and two members leave. One of them
// is the founder.
//
// At the end the parent compares every balance with a plain run over the same file. It also
// compares what the ledger saw of the locks with what a lock promises.
//
// A service would write what is in layout.go, worker.go and dispatcher.go. The resource it protects
// is in orders.go, ledger.go and stay.go. child.go and control.go are the process around them.
// parent.go, process.go, outage.go, scale.go and report.go run the show.
package main

import (
	"context"
	"errors"
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
		os.Exit(member(os.Stdin, os.Stdout, os.Stderr))
	}
	o := options{target: workTarget}
	flag.IntVar(&o.shards, "shards", 1, "spread the tree over `n` Raft groups")
	flag.StringVar(&o.input, "input", "", "CSV `file` of orders (id,account,amount) instead of the built-in one")
	flag.BoolVar(&o.scale, "scale", false, "let processes join, lose a directory, and leave, instead of killing the leader")
	flag.BoolVar(&o.keep, "keep", false, "keep the members' directories and logs, and say where they are")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "cluster: unexpected argument %q\n", flag.Arg(0))
		os.Exit(2)
	}
	// Ctrl-C makes the parent end the run in an orderly way. The members ignore it and end with
	// their parent.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, o, os.Stdout)
	if err != nil && !errors.Is(err, errVerdict) {
		fmt.Fprintln(os.Stderr, "cluster:", err)
	}
	if err != nil {
		os.Exit(1)
	}
}
