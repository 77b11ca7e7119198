package docs

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/audit"
	"github.com/vivarium-go/vivarium/embed/backup/schedule"
	"github.com/vivarium-go/vivarium/embed/gateway"
	"github.com/vivarium-go/vivarium/internal/configfile"
	"go.yaml.in/yaml/v3"
)

// Every config of a member is one that `vivarium serve` accepts, or embed.ReadConfig if it has no
// gateway. What other programs read, Kubernetes and Docker Compose, is at least YAML.
func TestYAMLIsValid(t *testing.T) {
	for _, p := range pages(t) {
		for _, b := range p.blocks {
			if b.language != "yaml" {
				continue
			}
			if strings.Contains(b.text, "apiVersion:") || strings.Contains(b.text, "services:") {
				if err := documents(b.text); err != nil {
					t.Errorf("%s: the block is no YAML: %v", b.at, err)
				}
				continue
			}
			if err := config(b.text); err != nil {
				t.Errorf("%s: a member refuses the config: %v (a new section belongs into config in docs/yaml_test.go, too)", b.at, err)
			}
		}
	}
}

func documents(text string) error {
	d := yaml.NewDecoder(strings.NewReader(text))
	for {
		var document map[string]any
		if err := d.Decode(&document); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// config reads a config as cmd/vivarium does. An id may come from the command line, and
// certificates and users are the reader's.
func config(text string) error {
	var c struct {
		embed.Config `yaml:",inline"`
		Gateway      *gateway.Config  `yaml:"gateway"`
		Journal      audit.Config     `yaml:"audit"`
		Backup       *schedule.Config `yaml:"backup"`
		Admin        *struct {
			Listen     string   `yaml:"listen"`
			TokensFile string   `yaml:"tokensFile"`
			Hosts      []string `yaml:"hosts"`
			Page       bool     `yaml:"page"`
			OpenProbes bool     `yaml:"openProbes"`
			ZooKeeper  bool     `yaml:"zooKeeper"`
		} `yaml:"admin"`
	}
	if err := configfile.Read(strings.NewReader(text), &c); err != nil {
		return err
	}
	if c.ID == 0 {
		c.ID = 1
	}
	c.TLS = nil
	if c.Backup != nil {
		if err := c.Backup.Validate(); err != nil {
			return err
		}
	}
	if c.Gateway == nil {
		return c.Config.Validate()
	}
	c.Gateway.TLS, c.Gateway.SASLUsers, c.Gateway.RequireSASL = nil, "", false
	return errors.Join(c.Config.Validate(), c.Gateway.Validate())
}
