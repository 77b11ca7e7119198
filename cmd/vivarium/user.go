package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/vivarium-go/vivarium/embed/gateway"
)

// passwordMax bounds the line that printUser reads.
const passwordMax = 1 << 10

// printUser prints the line of a user for gateway.saslUsers. It takes the password from the
// standard input: everybody on the machine can see a command's arguments.
func printUser(_ context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	flags := newFlags("user", "NAME < PASSWORD", stderr)
	if code, ok := parse(flags, args, 1); !ok {
		return code
	}
	password, err := readPassword(stdin)
	if err == nil {
		var line string
		if line, err = gateway.UserLine(flags.Arg(0), password); err == nil {
			fmt.Fprintln(stdout, line)
			return exitOK
		}
	}
	fmt.Fprintln(stderr, "vivarium user:", err)
	return exitUsage
}

// readPassword returns the first line of an input.
func readPassword(in io.Reader) (string, error) {
	line, err := bufio.NewReader(io.LimitReader(in, passwordMax+1)).ReadString('\n')
	if err != nil && err != io.EOF {
		return "", err
	}
	if len(line) > passwordMax {
		return "", errors.New("the password is too long")
	}
	return strings.TrimRight(line, "\r\n"), nil
}
