package gateway_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"os"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/gateway"
)

// A service opens its tree to ZooKeeper's clients. This short client asks a four-letter word. Any
// other client would do, such as
//
//	zkCli.sh -server 127.0.0.1:2181 get /greeting
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "vivarium-gateway-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	node, err := embed.Start(embed.Config{Dir: dir, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		log.Fatal(err)
	}
	defer node.Close()

	door, err := gateway.Start(node, gateway.Config{Listen: "127.0.0.1:0", Words: []string{"ruok"}})
	if err != nil {
		log.Fatal(err)
	}
	defer door.Close() // the clients' sessions live on; clients can reattach them to another member

	session, err := node.NewSession(ctx, embed.SessionOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer session.Close()
	if _, err := session.Create(ctx, "/greeting", []byte("hello"), embed.Persistent); err != nil {
		log.Fatal(err)
	}

	conn, err := net.Dial("tcp", door.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "ruok"); err != nil {
		log.Fatal(err)
	}
	answer, err := io.ReadAll(conn)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", answer)
	// Output: imok
}
