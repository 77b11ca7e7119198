//go:build unix

package main

import (
	_ "embed"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/vivarium-go/vivarium/bench/internal/measure"
	"github.com/vivarium-go/vivarium/internal/testkit/child"
	"github.com/vivarium-go/vivarium/internal/testkit/zookeeper"
)

// members is how many members each ensemble has.
const members = 3

// servers is an ensemble of ZooKeeper's servers, with the settings of the example that comes with
// ZooKeeper.
type servers struct {
	cmds  []*exec.Cmd
	addrs []string // for clients, the leader's first
}

func startServers(dir string) (*servers, error) {
	z := &servers{}
	err := z.start(dir)
	if err != nil {
		z.close()
		return nil, err
	}
	return z, nil
}

func (z *servers) start(dir string) error {
	addrs, err := child.FreeAddrs(3 * members) // for clients, for the leader, for elections
	if err != nil {
		return err
	}
	ports := make([]string, len(addrs))
	for i, addr := range addrs {
		if _, ports[i], err = net.SplitHostPort(addr); err != nil {
			return err
		}
	}
	config := "tickTime=2000\ninitLimit=10\nsyncLimit=5\nforceSync=yes\nadmin.enableServer=false\nmaxClientCnxns=0\nclientPortAddress=127.0.0.1\n"
	for i := range members {
		config += fmt.Sprintf("server.%d=127.0.0.1:%s:%s\n", i+1, ports[members+i], ports[2*members+i])
	}
	for i := range members {
		own := filepath.Join(dir, fmt.Sprint("zookeeper", i))
		file := filepath.Join(own, "zoo.cfg")
		text := config + fmt.Sprintf("dataDir=%s\nclientPort=%s\n", own, ports[i])
		err := errors.Join(os.MkdirAll(own, 0o755), os.WriteFile(file, []byte(text), 0o644),
			os.WriteFile(filepath.Join(own, "myid"), []byte(strconv.Itoa(i+1)), 0o644))
		if err != nil {
			return err
		}
		cmd := exec.Command("java", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", zookeeper.ClassPath(), zookeeper.Server, file)
		log, err := os.Create(filepath.Join(own, "log"))
		if err != nil {
			return err
		}
		cmd.Stderr = log
		err = child.Start(cmd)
		_ = log.Close() // it is the server's
		if err != nil {
			return err
		}
		z.cmds = append(z.cmds, cmd)
	}
	for _, addr := range addrs[:members] {
		mode := ""
		if err := measure.Until("a server of ZooKeeper", func() bool { mode = modeOf(addr); return mode != "" }); err != nil {
			return err
		}
		if mode == "leader" {
			z.addrs = append([]string{addr}, z.addrs...)
		} else {
			z.addrs = append(z.addrs, addr)
		}
	}
	return nil
}

// modeOf returns what a server says of its role. It is empty if the server does not serve.
func modeOf(addr string) string {
	for line := range strings.Lines(zookeeper.Ask(addr, "srvr")) {
		if mode, ok := strings.CutPrefix(line, "Mode: "); ok {
			return strings.TrimSpace(mode)
		}
	}
	return ""
}

func (z *servers) close() {
	for _, cmd := range z.cmds {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // the error only says that a signal ended it
	}
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
