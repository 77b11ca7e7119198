//go:build unix

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/vivarium-go/vivarium/internal/testkit/child"
)

// manifest has the fields of Kubernetes objects that docs/kubernetes.md relies on.
type manifest struct {
	Kind     string
	Metadata struct{ Name string }
	Data     map[string]string
	Spec     struct {
		ClusterIP                string `yaml:"clusterIP"`
		PublishNotReadyAddresses bool   `yaml:"publishNotReadyAddresses"`
		Selector                 map[string]any
		Ports                    []struct{ Port int }
		MaxUnavailable           int    `yaml:"maxUnavailable"`
		ServiceName              string `yaml:"serviceName"`
		PodManagementPolicy      string `yaml:"podManagementPolicy"`
		Replicas                 int
		Template                 struct {
			Metadata struct{ Labels map[string]any }
			Spec     struct {
				TerminationGracePeriodSeconds int `yaml:"terminationGracePeriodSeconds"`
				SecurityContext               struct {
					FSGroup             int    `yaml:"fsGroup"`
					FSGroupChangePolicy string `yaml:"fsGroupChangePolicy"`
				} `yaml:"securityContext"`
				Containers []container
				Volumes    []struct {
					Name      string
					ConfigMap struct{ Name string } `yaml:"configMap"`
				}
			}
		}
		VolumeClaimTemplates []struct{ Metadata struct{ Name string } } `yaml:"volumeClaimTemplates"`
	}
}

type container struct {
	Env   []struct{ Name string }
	Args  []string
	Ports []struct {
		ContainerPort int `yaml:"containerPort"`
	}
	ReadinessProbe struct {
		Exec struct{ Command []string }
	} `yaml:"readinessProbe"`
	VolumeMounts []struct {
		Name      string
		MountPath string `yaml:"mountPath"`
	} `yaml:"volumeMounts"`
}

// manifests returns the objects of a section of docs/kubernetes.md, by kind.
func manifests(t *testing.T, section string) map[string]manifest {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "kubernetes.md"))
	must(t, err)
	_, text, found := strings.Cut(string(page), "\n## "+section+"\n\n```yaml\n")
	text, _, ended := strings.Cut(text, "```")
	if !found || !ended {
		t.Fatalf("docs/kubernetes.md has no manifest in section %q", section)
	}
	all := make(map[string]manifest)
	for d := yaml.NewDecoder(strings.NewReader(text)); ; {
		var m manifest
		err := d.Decode(&m)
		if errors.Is(err, io.EOF) {
			return all
		}
		must(t, err)
		all[m.Kind] = m
	}
}

// What the objects of the guide say of one another fits.
func TestKubernetes_ManifestsFit(t *testing.T) {
	for section, workload := range map[string]string{"StatefulSet": "StatefulSet", "Deployment": "Deployment"} {
		all := manifests(t, section)
		service, set, budget := all["Service"], all[workload], all["PodDisruptionBudget"]
		labels := fmt.Sprint(set.Spec.Template.Metadata.Labels)
		for what, selector := range map[string]any{"the Service": service.Spec.Selector, workload: set.Spec.Selector["matchLabels"],
			"the PodDisruptionBudget": budget.Spec.Selector["matchLabels"]} {
			if fmt.Sprint(selector) != labels {
				t.Errorf("%s: %s selects %v, the pods have %s", section, what, selector, labels)
			}
		}
		if service.Spec.ClusterIP != "None" || !service.Spec.PublishNotReadyAddresses || budget.Spec.MaxUnavailable != 1 {
			t.Errorf("%s: Service %+v, budget %+v", section, service.Spec, budget.Spec)
		}
		pod := set.Spec.Template.Spec
		c := pod.Containers[0]
		for _, port := range c.Ports {
			if !slices.ContainsFunc(service.Spec.Ports, func(p struct{ Port int }) bool { return p.Port == port.ContainerPort }) {
				t.Errorf("%s: the Service lacks port %d", section, port.ContainerPort)
			}
		}
		volumes := set.Spec.VolumeClaimTemplates
		for _, mount := range c.VolumeMounts {
			claimed := slices.ContainsFunc(volumes, func(v struct{ Metadata struct{ Name string } }) bool { return v.Metadata.Name == mount.Name })
			given := false
			for _, v := range pod.Volumes {
				given = given || v.Name == mount.Name
				if v.ConfigMap.Name != "" && v.ConfigMap.Name != all["ConfigMap"].Metadata.Name {
					t.Errorf("%s: there is no ConfigMap %q", section, v.ConfigMap.Name)
				}
			}
			if !claimed && !given {
				t.Errorf("%s: there is no volume %q", section, mount.Name)
			}
		}
		for _, arg := range c.Args {
			for _, used := range regexp.MustCompile(`\$\((\w+)\)`).FindAllStringSubmatch(arg, -1) {
				if !slices.ContainsFunc(c.Env, func(e struct{ Name string }) bool { return e.Name == used[1] }) {
					t.Errorf("%s: %s is no variable of the container", section, used[0])
				}
			}
		}
		if least := int(leaveTime.Seconds()); pod.TerminationGracePeriodSeconds <= least {
			t.Errorf("%s: a stop gets %d s and may take more than %d", section, pod.TerminationGracePeriodSeconds, least)
		}
	}
	set := manifests(t, "StatefulSet")["StatefulSet"].Spec
	if service := manifests(t, "StatefulSet")["Service"]; set.ServiceName != service.Metadata.Name || set.PodManagementPolicy != "Parallel" {
		t.Errorf("StatefulSet: service %q, policy %q", set.ServiceName, set.PodManagementPolicy)
	}
}

// A claimed volume belongs to root until fsGroup gives it to a group. That must be the image's, or
// the member cannot create its directory. The policy keeps Kubernetes from opening the files that
// the member made for its owner alone.
func TestKubernetes_TheImageMayWriteItsVolume(t *testing.T) {
	stages := instructions(t)
	_, group, _ := strings.Cut(instruction(t, stages[len(stages)-1], "USER"), ":")
	got := manifests(t, "StatefulSet")["StatefulSet"].Spec.Template.Spec.SecurityContext
	if fmt.Sprint(got.FSGroup) != group || got.FSGroupChangePolicy != "OnRootMismatch" {
		t.Errorf("the volume is given to %+v, and the image runs in group %s", got, group)
	}
}

// pods runs the containers of the StatefulSet as processes. The names of the pods are addresses on
// loopback, and that of the Service stands for all of them.
type pods struct {
	t         *testing.T
	dir       string
	container container
	config    string
	addrs     []string // by ordinal, of the port for members
	clients   []string
	runs      []*child.Program
}

func newPods(t *testing.T, n int) *pods {
	t.Helper()
	all := manifests(t, "StatefulSet")
	addrs, err := child.FreeAddrs(2 * n)
	must(t, err)
	p := &pods{t: t, dir: t.TempDir(), container: all["StatefulSet"].Spec.Template.Spec.Containers[0],
		config: all["ConfigMap"].Data["node.yaml"], addrs: addrs[:n], clients: addrs[n:]}
	return p
}

// here replaces what stands for another machine: names, and directories of the container.
func (p *pods) here(text string, ordinal int) string {
	text = strings.ReplaceAll(text, "$(POD)", fmt.Sprintf("vivarium-%d", ordinal))
	for i, addr := range p.addrs {
		text = strings.ReplaceAll(text, fmt.Sprintf("vivarium-%d.vivarium:7400", i), addr)
	}
	text = strings.ReplaceAll(text, `"vivarium:7400"`, `"`+strings.Join(p.addrs[:max(3, ordinal+1)], `", "`)+`"`) // the name stands for the pods that there are
	text = strings.NewReplacer("127.0.0.1:2181", p.clients[ordinal], ":2181", p.clients[ordinal]).Replace(text)
	for _, m := range p.container.VolumeMounts {
		text = strings.ReplaceAll(text, m.MountPath, p.mount(m.Name, ordinal))
	}
	return text
}

func (p *pods) mount(name string, ordinal int) string {
	return filepath.Join(p.dir, fmt.Sprintf("%s-%d", name, ordinal))
}

// start runs the container of the next pod.
func (p *pods) start() {
	p.t.Helper()
	ordinal := len(p.runs)
	for _, m := range p.container.VolumeMounts {
		must(p.t, os.MkdirAll(p.mount(m.Name, ordinal), 0o755))
	}
	must(p.t, os.WriteFile(filepath.Join(p.mount("config", ordinal), "node.yaml"), []byte(p.here(p.config, ordinal)), 0o644))
	args := make([]string, len(p.container.Args))
	for i, arg := range p.container.Args {
		args[i] = p.here(arg, ordinal)
	}
	p.runs = append(p.runs, spawn(p.t, p.dir, args...))
}

// ready waits until a pod serves, and asks as its readiness probe does.
func (p *pods) ready(ordinal int) string {
	p.t.Helper()
	line := p.runs[ordinal].Says("msg=serving")
	var probe []string
	for _, arg := range p.container.ReadinessProbe.Exec.Command[1:] {
		probe = append(probe, p.here(arg, ordinal))
	}
	// Kubernetes probes again and again too.
	until(p.t, fmt.Sprintf("the readiness probe of pod %d", ordinal), func() bool {
		code, _, _ := vivarium(probe...)
		return code == exitOK
	})
	return line
}

// The containers of the guide found an ensemble with one config for all, a further pod joins it,
// and the commands of the guide take that one out again.
func TestKubernetes_ContainersRun(t *testing.T) {
	t.Parallel()
	p := newPods(t, 4)
	for range 3 {
		p.start()
	}
	for ordinal := range 3 {
		if line := p.ready(ordinal); !strings.Contains(line, fmt.Sprintf("member=%d ", ordinal+1)) {
			t.Errorf("pod %d: %s", ordinal, line)
		}
	}
	p.start()
	if line := p.ready(3); !strings.Contains(line, "member=4 ") {
		t.Errorf("a pod that is no founder: %s", line)
	}
	file := filepath.Join(p.mount("config", 0), "node.yaml")
	untilMembers(t, file, exitOK, `^1 +voter`, `^2 +voter`, `^3 +voter`, `^4 +learner +yes`)

	p.runs[3].Signal(syscall.SIGTERM)
	if code := p.runs[3].ExitCode(); code != exitOK {
		t.Errorf("SIGTERM: %d\n%s", code, p.runs[3].Log())
	}
	removes(t, file, "4")
}
