//go:build linux

package main

import (
	_ "embed"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/vivarium-go/vivarium/internal/testkit/zookeeper"
)

// scripted is an ensemble of ZooKeeper's servers, with a client in another language that brings
// recipes. The client is a process that answers lines of words.
type scripted struct {
	*zooKeeper
	client *speaker
}

// A script returns a command that starts a client, or an error that says what is missing. The first
// argument of the command says what the process is: "client" or "member".
type script func(dir string) (func(args ...string) *exec.Cmd, error)

// missing says what a script lacks.
func (s script) missing() error {
	if err := noZooKeeper(); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	_, err = s(dir)
	return err
}

func (s script) start(p place) (ensemble, error) {
	command, err := s(p.Dir)
	if err != nil {
		return nil, err
	}
	servers, err := startZooKeeper(p)
	if err != nil {
		return nil, err
	}
	z := servers.(*zooKeeper)
	hosts, err := z.leaderFirst()
	if err == nil {
		var c *speaker
		if c, err = startSpeaker(command("client", strings.Join(hosts, ",")), filepath.Join(p.Dir, "client.log")); err == nil {
			return scripted{z, c}, nil
		}
	}
	z.close()
	return nil, err
}

func (s scripted) play(words string) ([]float64, error) { return s.client.ask(words, patience) }

func (s scripted) close() {
	s.client.kill()
	s.zooKeeper.close()
}

// leaderFirst returns the addresses for clients.
func (z *zooKeeper) leaderFirst() (hosts []string, err error) {
	leader, err := z.leader()
	for i := range z.place.Addrs {
		hosts = append(hosts, z.place.Addrs[(leader+i)%len(z.place.Addrs)][1])
	}
	return hosts, err
}

// kazooMember starts ZooKeeper's servers, unless they run, and returns a command that starts a
// member.
func kazooMember(w *worker) (m memberCommand, err error) {
	command, err := kazoo(w.Place.Dir)
	if err != nil {
		return m, err
	}
	if w.e == nil {
		if w.e, err = startZooKeeper(w.Place); err != nil {
			return m, err
		}
	}
	m.hosts, err = w.e.(*zooKeeper).leaderFirst()
	m.of = func(args ...string) *exec.Cmd { return command(append([]string{"member"}, args...)...) }
	return m, err
}

//go:embed clients/recipes_kazoo.py
var kazooScript []byte

//go:embed clients/Recipes.java
var curatorProgram []byte

// kazoo returns a command that starts the script, or an error that says what is missing.
func kazoo(dir string) (func(args ...string) *exec.Cmd, error) {
	for _, name := range []string{"/usr/bin/python3", "python3"} {
		if exec.Command(name, "-c", "import kazoo.client").Run() == nil {
			file := filepath.Join(dir, "recipes_kazoo.py")
			return func(args ...string) *exec.Cmd {
				return exec.Command(name, append([]string{file}, args...)...)
			}, os.WriteFile(file, kazooScript, 0o644)
		}
	}
	return nil, errors.New("there is no Python with kazoo: the Debian package is python3-kazoo")
}

// curator returns a command that starts the program, or an error that says what is missing.
func curator(dir string) (func(args ...string) *exec.Cmd, error) {
	jars := []string{"curator-recipes.jar", "curator-framework.jar", "curator-client.jar", "guava.jar"}
	// java needs javac's classes to run a source file
	if _, err := exec.LookPath("javac"); err != nil || !zookeeper.Installed(jars...) {
		return nil, errors.New("there is no Curator: the Debian packages are libcurator-recipes-java and default-jdk-headless")
	}
	jars = append(jars, "failureaccess*.jar") // older packages of guava contain it
	file := filepath.Join(dir, "Recipes.java")
	return func(args ...string) *exec.Cmd {
		return exec.Command("java", append([]string{"-Dorg.slf4j.simpleLogger.defaultLogLevel=off", "-cp", zookeeper.ClassPath(jars...), file}, args...)...)
	}, os.WriteFile(file, curatorProgram, 0o644)
}
