//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/internal/testkit/child"
)

// vivarium is an ensemble of Vivarium with a session on its first member.
type vivarium struct {
	seed    string
	nodes   []*embed.Node
	session *embed.Session
	parents sync.Map
}

func startVivarium(dir string) (ensemble, error) {
	addresses, err := child.FreeAddrs(voters)
	if err != nil {
		return nil, err
	}
	v := &vivarium{seed: addresses[0]}
	for i, address := range addresses {
		n, err := v.start(filepath.Join(dir, fmt.Sprint(i)), address, i == 0)
		if err != nil {
			return nil, err
		}
		if err := n.Ready(context.Background()); err != nil {
			return nil, err
		}
		v.nodes = append(v.nodes, n)
	}
	v.session, err = v.nodes[0].NewSession(context.Background(), embed.SessionOptions{})
	return v, err
}

func (v *vivarium) start(dir, address string, founds bool) (*embed.Node, error) {
	return embed.Start(embed.Config{Dir: dir, Join: []string{v.seed}, Advertise: address,
		Found:  func(context.Context) (bool, error) { return founds, nil },
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))})
}

func (v *vivarium) put(ctx context.Context, parent, name string, data []byte) error {
	if _, made := v.parents.Load(parent); !made {
		if err := put(ctx, v.session, parent, nil); err != nil {
			return err
		}
		v.parents.Store(parent, true)
	}
	_, err := v.session.Create(ctx, parent+"/"+name, data, embed.Persistent)
	return err
}

func (v *vivarium) learn(dir string, _ int) (time.Duration, error) {
	address, err := child.FreeAddrs(1)
	if err != nil {
		return 0, err
	}
	ctx := context.Background()
	began := time.Now()
	n, err := v.start(dir, address[0], false)
	if err != nil {
		return 0, err
	}
	err = n.Ready(ctx)
	took := time.Since(began)
	return took, errors.Join(err, n.Leave(ctx))
}
