package clienttest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/vivarium-go/vivarium/internal/testkit/zookeeper"
)

// ZooKeeper's own shell prints the same with Vivarium as with ZooKeeper.
func TestZKCLI(t *testing.T) {
	t.Parallel()
	zookeeper.Need(t)
	script, err := os.ReadFile("testdata/zkcli.txt")
	must(t, err)
	compare(t, "zkcli", func(t *testing.T, s *system) string {
		var text strings.Builder
		text.WriteString(shell(t, s, string(script)))
		for _, line := range []string{"create /one shot", "get -s /one", "get /none"} {
			out, code := zkCLI(t, s, "", append([]string{"-timeout", "5000", "-waitforconnection"}, strings.Fields(line)...)...)
			fmt.Fprintf(&text, "$ %s: exit code %d\n%s", line, code, tidy(out))
		}
		return text.String()
	})
}

// shell returns what the shell prints for each line of a script, and the events of its watches. The
// shell prints events whenever they come.
func shell(t *testing.T, s *system, script string) string {
	t.Helper()
	var lines []string
	var in strings.Builder
	for line := range strings.Lines(script) {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		// The shell does not repeat what it reads. A unique stat before each line marks where the
		// line's answer begins.
		fmt.Fprintf(&in, "stat /line-%d\n%s\n", len(lines), strings.ReplaceAll(line, "ADDR", s.doors[1].listener.Addr().String()))
		lines = append(lines, line)
	}
	out, code := zkCLI(t, s, in.String())
	var text, events strings.Builder
	// of one connection and of the next; each has a thread of its own that delivers them
	var states []string
	for line := range strings.Lines(out) {
		line = strings.TrimRight(line, "\r\n")
		var n int
		switch _, err := fmt.Sscanf(line, "Node does not exist: /line-%d", &n); {
		case err == nil:
			fmt.Fprintf(&text, "> %s\n", lines[n])
		case strings.HasPrefix(line, "WatchedEvent") && strings.Contains(line, "type:None"):
			states = append(states, line+"\n")
		case strings.HasPrefix(line, "WatchedEvent"):
			events.WriteString(line + "\n")
		default:
			text.WriteString(line + "\n")
		}
	}
	slices.Sort(states)
	fmt.Fprintf(&text, "exit code %d\n== events\n%s%s", code, events.String(), strings.Join(states, ""))
	return tidy(text.String())
}

// zkCLI runs the shell, and returns its output and its exit code.
func zkCLI(t *testing.T, s *system, input string, args ...string) (string, int) {
	t.Helper()
	base := zookeeper.Java(nil, append([]string{"-Dfile.encoding=UTF-8", "org.apache.zookeeper.ZooKeeperMain", "-server", s.doors[0].listener.Addr().String()}, args...)...)
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, base.Path, base.Args[1:]...)
	cmd.Stdin = strings.NewReader(input)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), cmd.ProcessState.ExitCode()
}

var untidy = []struct {
	what *regexp.Regexp
	with string
}{
	{regexp.MustCompile(`(?m)^WATCHER::$`), ""},
	{regexp.MustCompile(`\n{2,}`), "\n"},
	{regexp.MustCompile(`(?m)^([cmp]Zxid) = 0x[0-9a-f]+$`), "$1 = (a zxid)"},
	{regexp.MustCompile(`(?m)^([cm]time) = .*$`), "$1 = (a time)"},
	{regexp.MustCompile(`(?m)^ephemeralOwner = 0x[1-9a-f][0-9a-f]*$`), "ephemeralOwner = (a session)"},
	{regexp.MustCompile(`127\.0\.0\.1:\d{2,}`), "(an address)"},
}

// unordered are lists without a promised order: ephemerals, and identities.
var unordered = []struct {
	what  *regexp.Regexp
	parts string
}{
	{regexp.MustCompile(`(?m)^\[(/.*)\]$`), ", "},
	{regexp.MustCompile(`(?m)^Auth scheme: User\n((?:.+: .+\n)+)`), "\n"},
}

// tidy removes what differs from run to run.
func tidy(s string) string {
	for _, u := range untidy {
		s = u.what.ReplaceAllString(s, u.with)
	}
	for _, u := range unordered {
		s = u.what.ReplaceAllStringFunc(s, func(found string) string {
			list := u.what.FindStringSubmatch(found)[1]
			parts := strings.Split(strings.TrimSuffix(list, "\n"), u.parts)
			slices.Sort(parts)
			return strings.Replace(found, strings.TrimSuffix(list, "\n"), strings.Join(parts, u.parts), 1)
		})
	}
	return s
}
