package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/vivarium-go/vivarium/embed"
)

// membersTime bounds the command members.
const membersTime = 30 * time.Second

// askMembers shows the members of an ensemble, or removes one.
func askMembers(ctx context.Context, args []string, _ io.Reader, stdout, stderr io.Writer) int {
	flags := newFlags("members", "-config node.yaml [-remove N]", stderr)
	file := flags.String("config", "", "YAML `file` of a member. Of its keys join, members, ensemble and tls count")
	var gone embed.MemberID
	flags.Func("remove", "take the member `N` out of the ensemble for good, if the rest is a quorum", func(s string) error {
		n, err := strconv.ParseUint(s, 10, 64)
		if err == nil && n == 0 {
			err = errors.New("ids begin at 1")
		}
		gone = embed.MemberID(n)
		return err
	})
	if code, ok := parse(flags, args, 0); !ok {
		return code
	}
	if *file == "" {
		flags.Usage()
		return exitUsage
	}
	c, err := parseConfig(*file)
	if err != nil {
		fmt.Fprintln(stderr, err)
		return exitUsage
	}
	ctx, cancel := context.WithTimeout(ctx, membersTime)
	defer cancel()
	if gone != 0 {
		if err := embed.AskRemoval(ctx, c.Config, gone); err != nil {
			fmt.Fprintf(stderr, "vivarium members: member %d is not removed: %v\n", gone, inKeys(err))
			return exitFailed
		}
		fmt.Fprintf(stdout, "member %d is out of the ensemble\n", gone)
		return exitOK
	}
	list, err := embed.AskMembers(ctx, c.Config)
	printMembers(stdout, list, err == nil)
	if err != nil {
		fmt.Fprintln(stderr, "vivarium members:", inKeys(err))
		return exitFailed
	}
	return exitOK
}

// printMembers prints a table. Only a leader knows who answers; without one, both columns show a
// question mark.
func printMembers(w io.Writer, list []embed.Member, led bool) {
	if len(list) == 0 {
		return
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "ID\tROLE\tANSWERS\tBEHIND\tADDRESS\tNAME\tZONE\tLEAVING")
	for _, m := range list {
		answers, behind := "no", "?"
		switch {
		case !led:
			answers = "?"
		case m.Answers:
			answers, behind = "yes", strconv.FormatUint(m.Behind, 10)
		}
		role := string(m.Role)
		if m.Observer {
			role = "observer"
		}
		fmt.Fprintf(t, "%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", m.ID, role, answers, behind, orDash(m.Address), orDash(m.Name), orDash(m.Zone), orDash(m.Leaving))
	}
	_ = t.Flush() // an output that fails cannot show an error either
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
