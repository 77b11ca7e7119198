//go:build unix

package main

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/internal/testkit/child"
)

// deployed returns a file of examples/deploy.
func deployed(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "examples", "deploy", name))
	must(t, err)
	return string(text)
}

// deployedConfig returns what examples/deploy/node.yaml says, as the member with that address.
func deployedConfig(t *testing.T, advertise string) config {
	t.Helper()
	c, err := readConfig(filepath.Join("..", "..", "examples", "deploy", "node.yaml"), embed.Config{Advertise: advertise})
	must(t, err)
	return c
}

// flagOf returns the value after a flag.
func flagOf(args []string, flag string) string {
	if i := slices.Index(args, flag); i >= 0 && i+1 < len(args) {
		return args[i+1]
	}
	return ""
}

// A unit has the values of each key of a unit of systemd.
type unit map[string][]string

func readUnit(text string) unit {
	u := make(unit)
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if key, value, ok := strings.Cut(line, "="); ok && !strings.HasPrefix(line, "#") {
			u[key] = append(u[key], value)
		}
	}
	return u
}

func (u unit) one(t *testing.T, key string) string {
	t.Helper()
	if len(u[key]) != 1 {
		t.Fatalf("%s is there %d times", key, len(u[key]))
	}
	return u[key][0]
}

// The unit fits the config and the command, and gives a stop the time that it takes.
func TestDeploy_UnitFits(t *testing.T) {
	u := readUnit(deployed(t, "vivarium.service"))
	for key, want := range map[string]string{"Type": "notify", "TimeoutStartSec": "infinity", "Restart": "on-failure",
		"StartLimitIntervalSec": "0", "ExecReload": "/bin/kill -HUP $MAINPID"} {
		if got := u.one(t, key); got != want {
			t.Errorf("%s is %s, want %s", key, got, want)
		}
	}
	command := strings.Fields(u.one(t, "ExecStart"))
	for i, arg := range command {
		command[i] = strings.ReplaceAll(arg, "%H", "vivarium-2")
	}
	c := deployedConfig(t, flagOf(command, "-advertise"))
	if c.Advertise != c.Members[2] {
		t.Errorf("host vivarium-2 advertises %s, the config says %s", c.Advertise, c.Members[2])
	}
	if state := "/var/lib/" + u.one(t, "StateDirectory") + "/"; !strings.HasPrefix(c.Dir, state) {
		t.Errorf("the service may write in %s, and the config has dir %s", state, c.Dir)
	}
	if file := flagOf(command, "-config"); file != "/etc/vivarium/node.yaml" {
		t.Errorf("the config is %s", file)
	}
	args := slices.Clone(command[1:])
	args[slices.Index(args, "-config")+1] = filepath.Join("..", "..", "examples", "deploy", "node.yaml")
	if code, _, stderr := vivarium(append(args, "-check")...); code != exitOK {
		t.Errorf("%q -check: %d, %s", args, code, stderr)
	}
	stop, err := strconv.Atoi(u.one(t, "TimeoutStopSec"))
	if err != nil || time.Duration(stop)*time.Second <= leaveTime {
		t.Errorf("a stop gets %d s (%v) and may take more than %v", stop, err, leaveTime)
	}
	most, err := strconv.ParseFloat(strings.TrimSuffix(u.one(t, "MemoryMax"), "G"), 64)
	must(t, err)
	limit, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimPrefix(u.one(t, "Environment"), "GOMEMLIMIT="), "MiB"), 64)
	must(t, err)
	if share := limit / (most * 1024); math.Abs(share-0.9) > 0.03 {
		t.Errorf("GOMEMLIMIT is %.2f of MemoryMax", share)
	}
}

// systemd itself finds nothing wrong with the unit: neither a key nor a value that it does not know.
func TestDeploy_UnitVerifies(t *testing.T) {
	t.Parallel()
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is not installed")
	}
	text := strings.ReplaceAll(deployed(t, "vivarium.service"), "/usr/local/bin/vivarium", binary)
	file := filepath.Join(t.TempDir(), "vivarium.service")
	must(t, os.WriteFile(file, []byte(text), 0o644))
	out, err := exec.CommandContext(t.Context(), analyze, "verify", "--man=no", file).CombinedOutput()
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, file) || strings.Contains(line, "vivarium.service") {
			t.Errorf("systemd-analyze verify: %s", line)
		}
	}
	if err != nil {
		t.Logf("systemd-analyze verify: %v\n%s", err, out)
	}
}

// instructions returns the instructions of the Dockerfile, by stage.
func instructions(t *testing.T) (stages [][]string) {
	t.Helper()
	for line := range strings.Lines(deployed(t, "Dockerfile")) {
		line = strings.TrimSpace(line)
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "FROM "):
			stages = append(stages, []string{line})
		default:
			stages[len(stages)-1] = append(stages[len(stages)-1], line)
		}
	}
	return stages
}

// instruction returns what follows the words with which the only such line of a stage begins.
func instruction(t *testing.T, stage []string, words string) string {
	t.Helper()
	var found []string
	for _, line := range stage {
		if rest, ok := strings.CutPrefix(line, words+" "); ok {
			found = append(found, rest)
		}
	}
	if len(found) != 1 {
		t.Fatalf("the Dockerfile has %q %d times", words, len(found))
	}
	return found[0]
}

// list reads a list such as ["serve", "-config"].
func list(t *testing.T, text string) (words []string) {
	t.Helper()
	must(t, yaml.Unmarshal([]byte(text), &words))
	return words
}

// The image has the binary where it is started, a directory for the data that its user owns, and
// the ports of the config.
func TestDeploy_ImageFits(t *testing.T) {
	stages := instructions(t)
	image := stages[len(stages)-1]
	if image[0] != "FROM scratch" {
		t.Errorf("the image begins with %s", image[0])
	}
	program := list(t, instruction(t, image, "ENTRYPOINT"))
	if from := instruction(t, image, "COPY --from=build /vivarium"); len(program) != 1 || from != program[0] {
		t.Errorf("it starts %q, and the binary is %s", program, from)
	}
	command := list(t, instruction(t, image, "CMD"))
	c := deployedConfig(t, "vivarium-1:7400")
	volume := instruction(t, image, "VOLUME")
	if !strings.HasPrefix(c.Dir, volume+"/") {
		t.Errorf("the volume is %s, and the config has dir %s", volume, c.Dir)
	}
	user := instruction(t, image, "USER")
	if data := instruction(t, image, "COPY --from=build --chown="+user); data != "/data "+volume {
		t.Errorf("the user %s owns %s, and the volume is %s", user, data, volume)
	}
	_, members, _ := strings.Cut(c.Advertise, ":")
	if want := members + " " + strings.TrimPrefix(c.Gateway.Listen, ":"); instruction(t, image, "EXPOSE") != want {
		t.Errorf("the image has other ports than %s", want)
	}
	if flagOf(command, "-config") != "/etc/vivarium/node.yaml" || command[0] != "serve" {
		t.Errorf("the command is %q", command)
	}
	module, err := os.ReadFile(filepath.Join("..", "..", "go.mod"))
	must(t, err)
	goes := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindSubmatch(module)
	if want := fmt.Sprintf("FROM golang:%s AS build", goes[1]); stages[0][0] != want {
		t.Errorf("it builds %s, want %s", stages[0][0], want)
	}
}

// The command of the Dockerfile builds a binary that needs no other file: it serves where nothing
// else is. It is the command that built the binary of the tests, see child.Main.
func TestDeploy_ImageRuns(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	if build := instruction(t, instructions(t)[0], "RUN CGO_ENABLED=0"); build != "go build -o /vivarium ./cmd/vivarium" {
		t.Fatalf("the Dockerfile builds with %q, and the tests' binary was built otherwise", build)
	}
	must(t, os.Link(binary, filepath.Join(root, "vivarium"))) // both are in the directory for temporary files
	out, err := exec.CommandContext(t.Context(), filepath.Join(root, "vivarium"), "version").CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "vivarium ") {
		t.Errorf("version: %v, %s", err, out)
	}
	chroot, err := exec.LookPath("chroot")
	if err != nil || os.Getuid() != 0 {
		t.Skip("only root can make the image's files the only ones")
	}
	must(t, os.WriteFile(filepath.Join(root, "node.yaml"), []byte("dir: data\ngateway: {listen: 127.0.0.1:0}\n"), 0o644))
	p := child.Run(t, root, chroot, root, "/vivarium", "serve", "-config", "/node.yaml")
	p.Says("msg=serving")
	p.Signal(syscall.SIGTERM)
	if code := p.ExitCode(); code != exitOK {
		t.Errorf("SIGTERM: %d", code)
	}
}

// A compose has the fields that examples/deploy/compose.yaml uses. Others are refused.
type compose struct {
	Name     string
	Member   any `yaml:"x-member"`
	Services map[string]struct {
		Image           string
		Build           struct{ Context, Dockerfile string }
		Restart         string
		StopGracePeriod string   `yaml:"stop_grace_period"`
		ReadOnly        bool     `yaml:"read_only"`
		CapDrop         []string `yaml:"cap_drop"`
		SecurityOpt     []string `yaml:"security_opt"`
		Ulimits         map[string]int
		Healthcheck     struct {
			Test              []string
			Interval, Timeout string
			StartPeriod       string `yaml:"start_period"`
		}
		Command, Ports, Volumes []string
	}
	Volumes map[string]any
}

func readCompose(t *testing.T) (c compose) {
	t.Helper()
	d := yaml.NewDecoder(strings.NewReader(deployed(t, "compose.yaml")))
	d.KnownFields(true)
	must(t, d.Decode(&c))
	return c
}

// The services are the members of the config. Each has a volume of its own where its data are.
func TestDeploy_ComposeFits(t *testing.T) {
	all, config := readCompose(t), deployedConfig(t, "vivarium-1:7400")
	volumes, hostPorts := make(map[string]bool), make(map[string]bool)
	for id, addr := range config.Members {
		name, _, _ := strings.Cut(addr, ":")
		s, ok := all.Services[name]
		if !ok {
			t.Errorf("member %d is %s, and there is no such service", id, addr)
			continue
		}
		if own := flagOf(s.Command, "-advertise"); own != addr {
			t.Errorf("%s advertises %s, the config says %s", name, own, addr)
		}
		if len(s.Volumes) != 2 {
			t.Fatalf("%s mounts %v", name, s.Volumes)
		}
		volume, target, _ := strings.Cut(s.Volumes[0], ":")
		if _, ok := all.Volumes[volume]; !ok || volumes[volume] || !strings.HasPrefix(config.Dir, target+"/") {
			t.Errorf("%s has its data in %s, and mounts %s", name, config.Dir, s.Volumes[0])
		}
		volumes[volume] = true
		if want := "./node.yaml:" + flagOf(s.Command, "-config") + ":ro"; s.Volumes[1] != want {
			t.Errorf("%s mounts %s, want %s", name, s.Volumes[1], want)
		}
		host, port, ok := cutLast(s.Ports[0], ":")
		if !ok || ":"+port != config.Gateway.Listen || hostPorts[host] || !strings.HasPrefix(host, "127.0.0.1:") {
			t.Errorf("%s: port %s, the config says %s", name, s.Ports[0], config.Gateway.Listen)
		}
		hostPorts[host] = true
		if stop, err := time.ParseDuration(s.StopGracePeriod); err != nil || stop <= leaveTime {
			t.Errorf("%s: a stop gets %s and may take more than %v", name, s.StopGracePeriod, leaveTime)
		}
		file := filepath.Join("..", "..", "examples", "deploy", s.Build.Context, s.Build.Dockerfile)
		if _, err := os.Stat(file); err != nil {
			t.Error(err)
		}
	}
	if len(all.Services) != len(config.Members) || len(all.Volumes) != len(config.Members) {
		t.Errorf("%d services and %d volumes, want %d", len(all.Services), len(all.Volumes), len(config.Members))
	}
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// What the containers run is an ensemble of three, and each answers its health check.
func TestDeploy_ComposeRuns(t *testing.T) {
	t.Parallel()
	all, dir := readCompose(t), t.TempDir()
	ports, err := child.FreeAddrs(6)
	must(t, err)
	names := []string{"vivarium-1", "vivarium-2", "vivarium-3"}
	here := func(text string, i int) string {
		for n, name := range names {
			text = strings.ReplaceAll(text, name+":7400", ports[n])
		}
		text = strings.ReplaceAll(text, `"127.0.0.1:2181"`, ports[3+i])
		text = strings.NewReplacer("127.0.0.1:2181", ports[3+i], ":2181", ports[3+i]).Replace(text)
		text = strings.ReplaceAll(text, "/etc/vivarium", filepath.Join(dir, names[i], "etc"))
		return strings.ReplaceAll(text, "/var/lib/vivarium", filepath.Join(dir, names[i]))
	}
	words := func(list []string, i int) (args []string) {
		for _, word := range list {
			args = append(args, here(word, i))
		}
		return args
	}
	var runs []*child.Program
	for i, name := range names {
		must(t, os.MkdirAll(filepath.Join(dir, name, "etc"), 0o755))
		file := filepath.Join(dir, name, "etc", "node.yaml")
		must(t, os.WriteFile(file, []byte(here(deployed(t, "node.yaml"), i)), 0o644))
		runs = append(runs, spawn(t, dir, words(all.Services[name].Command, i)...))
	}
	for i, name := range names {
		if line := runs[i].Says("msg=serving"); !strings.Contains(line, fmt.Sprintf("member=%d ", i+1)) {
			t.Errorf("%s: %s", name, line)
		}
		test := all.Services[name].Healthcheck.Test
		if test[0] != "CMD" || test[1] != "/vivarium" {
			t.Fatalf("%s: health check %q", name, test)
		}
		until(t, "the health check of "+name, func() bool { // it is repeated there too
			code, _, _ := vivarium(words(test[2:], i)...)
			return code == exitOK
		})
	}
	for i, name := range slices.Backward(names) {
		runs[i].Signal(syscall.SIGTERM)
		if code := runs[i].ExitCode(); code != exitOK {
			t.Errorf("%s at SIGTERM: %d", name, code)
		}
	}
}
