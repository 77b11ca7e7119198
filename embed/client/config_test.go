package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/internal/testkit"
)

func TestConfig(t *testing.T) {
	for want, c := range map[string]Config{
		"":                    {Servers: []string{"a:1", "[::1]:2181"}},
		"Servers is empty":    {},
		`Servers[1] is "a"`:   {Servers: []string{"a:1", "a"}},
		"SessionTimeout is -": {Servers: []string{"a:1"}, SessionTimeout: -1},
		"RequestTimeout is -": {Servers: []string{"a:1"}, RequestTimeout: -1},
	} {
		err := c.Validate()
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%+v: %v, want %q", c, err, want)
		}
	}
}

func TestServersOf(t *testing.T) {
	for config, want := range map[string]string{
		"": "[]",
		"server.1=h1:7000:7000:participant;10.0.0.1:2181\nserver.2=h2:7000:7000:observer;10.0.0.2:2182\nversion=5": "[10.0.0.1:2181 10.0.0.2:2182]",
		"server.1=h1:7000:7000:participant\nversion=5":                                                             "[]",
		"server.1=h:1:1;0.0.0.0:2181":                                                                              "[]",
		"server.1=h:1:1;2181":                                                                                      "[]",
		"server.1=h:1:1;[::1]:2181":                                                                                "[[::1]:2181]",
		"nonsense;=;\x00":                                                                                          "[]",
	} {
		if got := fmt.Sprint(serversOf(config)); got != want {
			t.Errorf("%q has %v, want %v", config, got, want)
		}
	}
}

// A server that answers nonsense, or nobody, opens no session. The error says why.
func TestNoServer(t *testing.T) {
	refused, rng := errors.New("nobody listens"), testkit.Rand(t)
	for name, dial := range map[string]func() (net.Conn, error){
		"refused": func() (net.Conn, error) { return nil, refused },
		"silent": func() (net.Conn, error) {
			mine, theirs := net.Pipe()
			go func() { _, _ = theirs.Read(make([]byte, 100)) }()
			return mine, nil
		},
		"nonsense": func() (net.Conn, error) {
			mine, theirs := net.Pipe()
			go func() {
				_, _ = theirs.Read(make([]byte, 100))
				b := make([]byte, 200)
				for i := range b {
					b[i] = byte(rng.Uint32())
				}
				b[0], b[1], b[2] = 0, 0, 0 // a short frame
				_, _ = theirs.Write(b)
				_ = theirs.Close()
			}()
			return mine, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k, err := New(Config{Servers: []string{"a:1", "b:2"}, Logger: slog.New(slog.DiscardHandler),
					Dial: func(context.Context, string) (net.Conn, error) { return dial() }})
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				_, err = k.NewSession(ctx, embed.SessionOptions{})
				if !errors.Is(err, embed.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("the error is %v", err)
				}
				if name == "refused" && !strings.Contains(err.Error(), refused.Error()) {
					t.Errorf("the error does not say why: %v", err)
				}
				if err := k.Close(); err != nil {
					t.Error(err)
				}
				if _, err := k.NewSession(ctx, embed.SessionOptions{}); !errors.Is(err, embed.ErrClosed) {
					t.Errorf("after Close: %v", err)
				}
			})
		})
	}
}
